"""The training loop with models of a few weights, as other projects may use it."""

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save
from torch.utils.data import DataLoader, Dataset

from dsocr.config import TrainingSection
from dsocr.training.checkpoint import load_checkpoint, save_checkpoint
from dsocr.training.trainer import Callback, Trainer, build_optimizer, build_scheduler
from tests.raising import raises_code

SAMPLES, MICRO_BATCH = 12, 2


class Points(Dataset[dict[str, torch.Tensor]]):
    """Points of a line, with noise that changes every epoch."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.loaded: list[int] = []

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        self.loaded.append(index)
        x = torch.tensor([index / SAMPLES])
        return {"x": x, "y": 2 * x + 1 + 0.01 * self.epochs[-1]}

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


class LineModel(torch.nn.Module):
    """A linear layer with dropout; `spoiled` maps a forward pass, counted from 1, to a factor of its loss."""

    def __init__(self, spoiled: Mapping[int, float] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(1, 1)
        self.dropout = torch.nn.Dropout(0.2)
        self.spoiled = spoiled or {}
        self.passes = 0

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        self.passes += 1
        loss = (self.dropout(self.linear(x)) - y).square().mean()
        if (factor := self.spoiled.get(self.passes)) is None:
            return {"loss": loss}
        # An infinite loss may have finite gradients.
        return {"loss": loss + factor if math.isinf(factor) else loss * factor}


class Recorder(Callback):
    """Keeps logs, in a checkpoint too, and does something after a step."""

    def __init__(self, step: int = 0, action: Any = None) -> None:
        self.logs: list[dict[str, Any]] = []
        self._step, self._action = step, action
        self.ended = 0

    def on_step_end(self, trainer: Trainer) -> None:
        if trainer.state.step == self._step:
            self._action(trainer)

    def on_log(self, trainer: Trainer, values: Mapping[str, float | None]) -> None:
        self.logs.append({"step": trainer.state.step, **values})

    def on_train_end(self, trainer: Trainer) -> None:
        self.ended += 1

    def state_dict(self) -> dict[str, Any]:
        return {"logs": self.logs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.logs = list(state["logs"])


def section(**settings: Any) -> TrainingSection:
    return TrainingSection.model_validate({"learning_rate": 0.05, **settings})


def make(
    recorder: Recorder,
    *,
    model: LineModel | None = None,
    optimizer: str = "AdamW",
    arguments: Mapping[str, Any] | None = None,
    dataset: Points | None = None,
    **options: Any,
) -> Trainer:
    """Twelve steps of two micro-batches, three steps an epoch; logged every five."""
    torch.manual_seed(1)
    model = model or LineModel()
    training = section(optimizer={"name": optimizer, **(arguments or {})}, lr_scheduler="linear", warmup_ratio=0.15)
    made = build_optimizer(training, list(model.parameters()))
    loader = DataLoader(dataset or Points(), batch_size=MICRO_BATCH, shuffle=False)
    settings = {"max_steps": 12, "gradient_accumulation_steps": 2, "log_every": 5, "callbacks": [recorder], **options}
    scheduler = build_scheduler(training, made, settings["max_steps"])
    return Trainer(model, made, scheduler, loader, **settings)


def save_to(path: Path) -> Any:
    def write(trainer: Trainer) -> None:
        weights = save(dict(trainer.module.state_dict()))
        save_checkpoint(path, trainer.state_dict(), [("model.safetensors", weights)])

    return write


def test_callbacks_of_one_class_keep_their_own_state() -> None:
    first, second = Recorder(), Recorder()
    trainer = make(first)
    trainer._callbacks.append(second)
    first.logs, second.logs = [{"step": 1}], [{"step": 2}]
    state = trainer.state_dict()
    first.logs, second.logs = [], []
    trainer.load_state_dict(state)
    assert (first.logs, second.logs) == ([{"step": 1}], [{"step": 2}])


def test_a_trainer_without_batches_is_refused() -> None:
    model = torch.nn.Linear(1, 1)
    with raises_code("no-batches"):
        Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), None, [], max_steps=1).fit()


def test_a_plain_module_is_trained() -> None:
    dataset, recorder = Points(), Recorder()
    model = LineModel()
    model.dropout.p = 0.0
    trainer = make(recorder, model=model, dataset=dataset, optimizer="SGD", max_steps=60)
    state = trainer.fit()
    assert (state.step, state.epoch, state.tokens) == (60, 20.0, 0)
    assert dataset.epochs == list(range(20))
    assert recorder.ended == 1
    assert [log["step"] for log in recorder.logs] == list(range(5, 61, 5))
    assert recorder.logs[-1]["loss"] < 0.3 * recorder.logs[0]["loss"]


def test_a_step_averages_the_items_of_all_its_micro_batches() -> None:
    """Three and one samples: the gradient is that of the four together."""

    def gradient(batches: list[int], accumulation: int) -> torch.Tensor:
        model = LineModel()
        model.dropout.p = 0.0
        x, y = torch.arange(4.0).unsqueeze(1), torch.ones(4, 1)
        cuts = torch.tensor([0, *batches]).cumsum(0).tolist()
        parts = [{"x": x[a:b], "y": y[a:b]} for a, b in itertools.pairwise(cuts)]
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        trainer = Trainer(
            model, optimizer, None, parts, max_steps=1, gradient_accumulation_steps=accumulation, max_grad_norm=1e9
        )
        trainer.fit()
        return model.linear.weight.detach()

    torch.testing.assert_close(gradient([3, 1], 2), gradient([4], 1))


def test_a_log_has_the_mean_loss_since_the_one_before() -> None:
    every, rare = Recorder(), Recorder()
    make(every, log_every=1).fit()
    make(rare, log_every=5).fit()
    losses = [log["loss"] for log in every.logs]
    assert [log["loss"] for log in rare.logs] == pytest.approx([fmean(losses[:5]), fmean(losses[5:10])])


def test_gradients_are_clipped_to_the_norm() -> None:
    model = LineModel()
    before = torch.cat([weight.detach().flatten().clone() for weight in model.parameters()])
    batch = {"x": torch.ones(4, 1), "y": torch.full((4, 1), 100.0)}
    Trainer(model, torch.optim.SGD(model.parameters(), lr=1.0), None, [batch], max_steps=1, max_grad_norm=0.5).fit()
    after = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    assert float((after - before).norm()) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize(
    ("optimizer", "arguments"),
    [
        pytest.param("AdamW", {}, id="AdamW"),
        pytest.param("SGD", {"momentum": 0.9}, id="SGD with momentum"),
        pytest.param("Adafactor", {}, id="Adafactor: row and column statistics"),
        pytest.param("NAdam", {}, id="NAdam: a product of momenta"),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 7])
def test_a_training_resumes_bit_by_bit(optimizer: str, arguments: dict[str, Any], step: int, tmp_path: Path) -> None:
    whole, cut, resumed = Recorder(), Recorder(step, lambda trainer: trainer.stop(save=True)), Recorder()
    options: dict[str, Any] = {"optimizer": optimizer, "arguments": arguments}
    expected = make(whole, **options)
    expected.fit()
    stopped = make(cut, save=save_to(tmp_path / "step"), **options)
    assert stopped.fit().step == step

    dataset = Points()
    trainer = make(resumed, dataset=dataset, **options)
    trainer.module.load_state_dict(load_file(tmp_path / "step" / "model.safetensors"))
    torch.manual_seed(99)
    trainer.fit(resume=load_checkpoint(tmp_path / "step"))
    for name, weight in expected.module.state_dict().items():
        assert torch.equal(weight, trainer.module.state_dict()[name])
    assert resumed.logs == whole.logs
    assert len(dataset.loaded) == 2 * MICRO_BATCH * (12 - step), "skipped samples are not loaded"
    assert dataset.epochs[0] == step // 3


@pytest.mark.parametrize("factor", [math.inf, math.nan], ids=["inf", "nan"])
def test_one_loss_that_is_not_finite_changes_nothing(factor: float) -> None:
    """The second micro-batch of step 2 is spoiled; the weights skip that step, and the log leaves it out."""
    spoiled, sound = Recorder(), Recorder()
    trainer = make(spoiled, model=LineModel({4: factor}), max_steps=5)
    weights: list[torch.Tensor] = []
    watch = Recorder(1, lambda trainer: weights.append(trainer.module.linear.weight.detach().clone()))
    after = Recorder(2, lambda trainer: weights.append(trainer.module.linear.weight.detach().clone()))
    trainer._callbacks += [watch, after]
    trainer.fit()
    assert torch.equal(weights[0], weights[1])
    (log,) = spoiled.logs
    assert math.isfinite(log["loss"])
    assert (log["nonfinite_losses"], log["skipped_steps"]) == (1, 0)
    make(sound, max_steps=5).fit()
    assert sound.logs[0]["nonfinite_losses"] == 0
    assert trainer.state.consecutive_nonfinite == 0


def test_three_losses_in_a_row_that_are_not_finite_end_a_training() -> None:
    recorder = Recorder()
    trainer = make(recorder, model=LineModel(dict.fromkeys(range(5, 99), math.nan)))
    with raises_code("loss-not-finite"):
        trainer.fit()
    assert trainer.state.step == 4
    assert recorder.ended == 1
    assert all(bool(torch.isfinite(weight).all()) for weight in trainer.module.parameters())


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    def spoil(trainer: Trainer) -> None:
        with torch.no_grad():
            trainer.module.get_parameter("linear.bias").fill_(math.inf)

    trainer = make(Recorder(3, spoil), save_every=3, save=save_to(tmp_path / "step"))
    with raises_code("weights-not-finite"):
        trainer.fit()
    assert not (tmp_path / "step").exists()


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("Adamm", {}, "optimizer-unknown"),
        ("LBFGS", {}, "optimizer-unknown"),
        ("SGD", {"momentom": 0.9}, "optimizer-arguments"),
        ("AdamW", {"betas": [2.0, 0.9]}, "optimizer-arguments"),
    ],
)
def test_optimizers_that_torch_does_not_have_are_refused(name: str, arguments: dict[str, Any], code: str) -> None:
    with raises_code(code):
        build_optimizer(section(optimizer={"name": name, **arguments}), list(LineModel().parameters()))


def test_optimizers_without_weight_decay_get_none() -> None:
    parameters = list(LineModel().parameters())
    assert "weight_decay" not in build_optimizer(section(optimizer="Rprop", weight_decay=0.1), parameters).defaults
    decayed = build_optimizer(section(weight_decay=0.1), parameters)
    assert decayed.defaults["weight_decay"] == 0.1


def test_arguments_that_a_schedule_does_not_take_are_refused() -> None:
    optimizer = torch.optim.SGD(LineModel().parameters(), lr=0.1)
    with raises_code("lr-scheduler-arguments"):
        build_scheduler(section(lr_scheduler={"name": "cosine", "cycles": 2}), optimizer, 9)
