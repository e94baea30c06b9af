"""The public names for type checkers; `_MODULES` in `__init__.py` has the same."""

from dsocr.api import (
    Reader as Reader,
)
from dsocr.api import (
    Run as Run,
)
from dsocr.api import (
    compare as compare,
)
from dsocr.api import (
    convert as convert,
)
from dsocr.api import (
    evaluate as evaluate,
)
from dsocr.api import (
    export as export,
)
from dsocr.api import (
    load as load,
)
from dsocr.api import (
    prepare as prepare,
)
from dsocr.api import (
    push as push,
)
from dsocr.api import (
    synthesize as synthesize,
)
from dsocr.api import (
    train as train,
)
from dsocr.api import (
    transcribe as transcribe,
)
from dsocr.config import (
    RunConfig as RunConfig,
)
from dsocr.config import (
    load_config as load_config,
)
from dsocr.data.check.findings import Findings as Findings
from dsocr.data.convert import ConvertReport as ConvertReport
from dsocr.data.dataset import Dataset as Dataset
from dsocr.data.synthesize import SynthesisReport as SynthesisReport
from dsocr.document import (
    Sample as Sample,
)
from dsocr.document import (
    Split as Split,
)
from dsocr.document import (
    Unit as Unit,
)
from dsocr.errors import (
    ConfigError as ConfigError,
)
from dsocr.errors import (
    DataError as DataError,
)
from dsocr.errors import (
    DsocrError as DsocrError,
)
from dsocr.errors import (
    ModelError as ModelError,
)
from dsocr.errors import (
    RunError as RunError,
)
from dsocr.evaluation.compare import Comparison as Comparison
from dsocr.evaluation.learning_curve import Forecast as Forecast
from dsocr.evaluation.metrics import (
    cer as cer,
)
from dsocr.evaluation.metrics import (
    wer as wer,
)
from dsocr.evaluation.report.audit_page import Audit as Audit
from dsocr.evaluation.scorecard import Scorecard as Scorecard
from dsocr.evaluation.tuning import TuneResult as TuneResult
from dsocr.inference.confidence import Prediction as Prediction
from dsocr.inference.engines import (
    Cluster as Cluster,
)
from dsocr.inference.engines import (
    RemoteEngine as RemoteEngine,
)
from dsocr.inference.suggest import Suggestions as Suggestions
from dsocr.inference.transcribe import TranscribeReport as TranscribeReport
from dsocr.io.processes import ProgressCallback as ProgressCallback
from dsocr.io.web import FetchOptions as FetchOptions
from dsocr.models.family import Processor as Processor
from dsocr.models.model_card import Export as Export
from dsocr.options import (
    ExportForm as ExportForm,
)
from dsocr.options import (
    RecipeKeys as RecipeKeys,
)
from dsocr.options import (
    RunConfigKeys as RunConfigKeys,
)
from dsocr.options import (
    SplitName as SplitName,
)
from dsocr.options import (
    StrPath as StrPath,
)
from dsocr.planning import (
    audit as audit,
)
from dsocr.planning import (
    dry_run as dry_run,
)
from dsocr.planning import (
    forecast as forecast,
)
from dsocr.planning import (
    suggest as suggest,
)
from dsocr.planning import (
    tune as tune,
)
from dsocr.publish import Publication as Publication
from dsocr.runs import History as History
from dsocr.text import TextPolicy as TextPolicy
from dsocr.training.callbacks import Callback as Callback
from dsocr.training.dry_run import DryRun as DryRun
from dsocr.training.trainer import (
    Batch as Batch,
)
from dsocr.training.trainer import (
    LossFunction as LossFunction,
)
from dsocr.training.trainer import (
    Trainer as Trainer,
)
from dsocr.training.trainer import (
    TrainerState as TrainerState,
)

__version__: str
__all__: list[str]
