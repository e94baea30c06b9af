"""DSOCR-HW: train handwriting recognition on your own archive.

    dataset = dsocr.prepare("scans/", "data/mine")
    run = dsocr.train(dataset=dataset, output="runs/mine")
    print(run.evaluate())
    reader = dsocr.load("runs/mine")

Names are loaded when they are used, so `import dsocr` is fast and never imports torch. `__init__.pyi` tells type
checkers the same names.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULES = {
    "dsocr.config": ("RunConfig", "load_config"),
    "dsocr.data.check": ("Findings",),
    "dsocr.data.convert": ("ConvertReport", "convert"),
    "dsocr.data.dataset": ("Dataset",),
    "dsocr.data.prepare": ("prepare",),
    "dsocr.doctor": ("Fact", "examine"),
    "dsocr.document": ("Sample", "SampleUnit", "Split", "Unit"),
    "dsocr.errors": ("ConfigError", "DataError", "DsocrError", "ModelError", "RunError"),
    "dsocr.evaluation.compare": ("Comparison",),
    "dsocr.evaluation.evaluate": ("evaluate",),
    "dsocr.evaluation.layout_scores": ("LayoutScores", "evaluate_layout"),
    "dsocr.evaluation.learning_curve": ("Forecast",),
    "dsocr.evaluation.metrics": ("cer", "wer"),
    "dsocr.evaluation.audit": ("Audit",),
    "dsocr.evaluation.predictions": ("compare",),
    "dsocr.evaluation.report": ("WrittenReport", "report"),
    "dsocr.evaluation.run": ("Run", "export"),
    "dsocr.evaluation.scorecard": ("Scorecard",),
    "dsocr.formats": ("source_formats",),
    "dsocr.formats.format": ("Format",),
    "dsocr.inference.confidence": ("Prediction",),
    "dsocr.inference.transcribe": ("Reader", "TranscribeReport", "load", "transcribe"),
    "dsocr.io.processes": ("ProgressCallback",),
    "dsocr.io.web": ("FetchOptions",),
    "dsocr.models.family": ("Processor",),
    "dsocr.models.export": ("Export",),
    "dsocr.options": ("ExportForm", "RecipeKeys", "RunConfigKeys", "SplitName", "StrPath"),
    "dsocr.publish": ("Publication", "push"),
    "dsocr.runs": ("History",),
    "dsocr.server": ("serve",),
    "dsocr.text": ("TextPolicy",),
    "dsocr.training.align": ("AlignReport", "align"),
    "dsocr.training.dry_run": ("DryRun",),
    "dsocr.training.folds": ("audit", "cross_validate"),
    "dsocr.training.forecast": ("forecast",),
    "dsocr.training.preview": ("CheckReport", "check", "preview"),
    "dsocr.training.train": ("dry_run", "train"),
    "dsocr.workbench": ("open_workbench",),
    "dsocr.training.trainer": ("Batch", "Callback", "LossFunction", "Trainer", "TrainerState"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'dsocr' has no attribute {name!r}")
        value = getattr(import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
