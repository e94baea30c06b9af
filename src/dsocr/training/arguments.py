"""One mapping from the run's configuration to the Trainer's arguments and optimizer."""

import math

import torch
from peft import PeftModel
from transformers import TrainingArguments

from dsocr.config import RunConfig, TrainingSection
from dsocr.errors import ConfigError
from dsocr.model.adapters import vision_parameters


def training_arguments(
    config: RunConfig, *, samples: int, device: torch.device, dtype: torch.dtype, processes: int = 1
) -> TrainingArguments:
    """What the Trainer is told for a training split of `samples`, with the base's weights in `dtype` on `device`.

    Saving, logging and validation are left to our callbacks and `AdapterTrainer`.
    """
    training = config.training
    per_device = training.samples_per_forward
    arguments = TrainingArguments(
        output_dir=str(config.run),
        max_steps=total_steps(config, samples, processes),
        per_device_train_batch_size=per_device,
        gradient_accumulation_steps=forwards_per_step(config, processes),
        learning_rate=training.learning_rate,
        lr_scheduler_type=training.schedule,
        warmup_steps=math.ceil(training.warmup * total_steps(config, samples, processes)),
        weight_decay=training.weight_decay,
        max_grad_norm=training.max_gradient_norm,
        optim="adamw_torch",
        bf16=dtype is torch.bfloat16,
        fp16=dtype is torch.float16,
        dataloader_num_workers=training.workers,
        # Each worker remembers the images it has prepared; without this they would be thrown away every epoch.
        dataloader_persistent_workers=training.workers > 0,
        dataloader_multiprocessing_context="spawn" if training.workers else None,
        dataloader_pin_memory=device.type == "cuda",
        remove_unused_columns=False,
        label_names=["labels"],
        seed=config.seed,
        data_seed=config.seed,
        use_cpu=device.type == "cpu",
        logging_strategy="steps",
        logging_steps=_log_every(total_steps(config, samples, processes)),
        logging_nan_inf_filter=False,
        save_strategy="steps",
        save_steps=config.checkpoints.every_steps,
        eval_strategy="no",
        include_num_input_tokens_seen="non_padding",
        report_to=[],
        disable_tqdm=True,
        # A gradient reaches the whole adapter in every batch: see gradients.py.
        ddp_find_unused_parameters=False,
    )
    # The configuration says it, not what `accelerate launch` wrote into the environment.
    arguments.mixed_precision = "bf16" if arguments.bf16 else "fp16" if arguments.fp16 else "no"
    # Of several graphics cards the Trainer would let one process take all, each with a copy of the base in every step.
    if device.type == "cuda" and arguments.n_gpu > 1:
        arguments._n_gpu = 1
    return arguments


def without_workers(config: RunConfig) -> RunConfig:
    """The configuration with all samples prepared in the training process."""
    return config.model_copy(update={"training": config.training.model_copy(update={"workers": 0})})


def shared_by_processes(config: RunConfig, processes: int) -> RunConfig:
    """The configuration with `samples_per_forward` lowered, if need be, so that each process makes equal batches.

    Raises ConfigError where the samples of a step cannot be shared evenly.
    """
    training = config.training
    if training.samples_per_step % processes:
        raise ConfigError(
            f"training.samples_per_step: {training.samples_per_step} samples cannot be shared by {processes} processes",
            hint=f"set it to a multiple of {processes}",
        )
    a_process = training.samples_per_step // processes
    per_forward = max(n for n in range(1, training.samples_per_forward + 1) if a_process % n == 0)
    shared = training.model_copy(update={"samples_per_forward": per_forward})
    return config.model_copy(update={"training": shared})


def two_rate_optimizer(model: PeftModel, training: TrainingSection) -> torch.optim.Optimizer | None:
    """AdamW with a learning rate of its own for the vision towers; None, for the Trainer's, where none is asked for.

    Raises ConfigError where it is asked for and the adapter has no part in the vision towers.
    """
    if training.vision_learning_rate is None:
        return None
    vision, others = vision_parameters(model)
    if not vision:
        raise ConfigError(
            "training.vision_learning_rate: the adapter has no part in the vision towers",
            hint="set adapter.scope to decoder+vision, or leave this out",
        )
    groups = [
        {"params": others, "lr": training.learning_rate},
        {"params": vision, "lr": training.vision_learning_rate},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], weight_decay=training.weight_decay)


def total_steps(config: RunConfig, samples: int, processes: int = 1) -> int:
    """Optimizer steps of the whole run; an epoch's last, smaller step counts."""
    if config.training.steps is not None:
        return config.training.steps
    assert config.training.epochs is not None
    return max(1, math.ceil(config.training.epochs * steps_per_epoch(config, samples, processes)))


def steps_per_epoch(config: RunConfig, samples: int, processes: int = 1) -> int:
    """Optimizer steps in which every sample is seen once."""
    return math.ceil(forwards_per_epoch(config, samples, processes) / forwards_per_step(config, processes))


def forwards_per_epoch(config: RunConfig, samples: int, processes: int = 1) -> int:
    """Batches on each device in which every sample is seen once; the last may be smaller."""
    return math.ceil(samples / (config.training.samples_per_forward * processes))


def forwards_per_step(config: RunConfig, processes: int = 1) -> int:
    """Batches on each device whose gradients make one optimizer step."""
    return max(1, config.training.samples_per_step // (config.training.samples_per_forward * processes))


def _log_every(steps: int) -> int:
    return max(1, min(10, steps // 50))
