"""DSOCR-HW: teach a reader one archive's handwriting.

    dataset = dsocr.prepare("scans/", "data/mine")
    run = dsocr.train(dataset=dataset, output="runs/mine")
    print(run.evaluate())
    reader = dsocr.load("runs/mine")

Names are loaded when they are used, so `import dsocr` is fast and never imports torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsocr.api import (
        Reader,
        Run,
        compare,
        convert,
        evaluate,
        export,
        load,
        prepare,
        push,
        synthesize,
        train,
        transcribe,
    )
    from dsocr.config import RunConfig, load_config
    from dsocr.data.dataset import Dataset
    from dsocr.errors import ConfigError, DataError, DsocrError, ModelError, RunError
    from dsocr.evaluation.metrics import cer, wer
    from dsocr.evaluation.scorecard import Scorecard
    from dsocr.io.web import FetchOptions
    from dsocr.planning import audit, dry_run, forecast, suggest, tune
    from dsocr.training.callbacks import Callback
    from dsocr.training.trainer import Trainer

__version__ = "0.1.0"

__all__ = [
    "Callback",
    "ConfigError",
    "DataError",
    "Dataset",
    "DsocrError",
    "FetchOptions",
    "ModelError",
    "Reader",
    "Run",
    "RunConfig",
    "RunError",
    "Scorecard",
    "Trainer",
    "__version__",
    "audit",
    "cer",
    "compare",
    "convert",
    "dry_run",
    "evaluate",
    "export",
    "forecast",
    "load",
    "load_config",
    "prepare",
    "push",
    "suggest",
    "synthesize",
    "train",
    "transcribe",
    "tune",
    "wer",
]

_MODULES = {
    "dsocr.config": ("RunConfig", "load_config"),
    "dsocr.data.dataset": ("Dataset",),
    "dsocr.errors": ("ConfigError", "DataError", "DsocrError", "ModelError", "RunError"),
    "dsocr.evaluation.metrics": ("cer", "wer"),
    "dsocr.evaluation.scorecard": ("Scorecard",),
    "dsocr.io.web": ("FetchOptions",),
    "dsocr.planning": ("audit", "dry_run", "forecast", "suggest", "tune"),
    "dsocr.training.callbacks": ("Callback",),
    "dsocr.training.trainer": ("Trainer",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dsocr' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF.get(name, "dsocr.api")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
