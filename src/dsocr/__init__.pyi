"""The public names for type checkers; `_MODULES` in `__init__.py` has the same."""

from dsocr.commands.learning import (
    align as align,
)
from dsocr.commands.learning import (
    audit as audit,
)
from dsocr.commands.learning import (
    dry_run as dry_run,
)
from dsocr.commands.learning import (
    forecast as forecast,
)
from dsocr.commands.learning import (
    train as train,
)
from dsocr.commands.scoring import (
    Run as Run,
)
from dsocr.commands.scoring import (
    WrittenReport as WrittenReport,
)
from dsocr.commands.scoring import (
    compare as compare,
)
from dsocr.commands.scoring import (
    evaluate as evaluate,
)
from dsocr.commands.scoring import (
    evaluate_layout as evaluate_layout,
)
from dsocr.commands.scoring import (
    export as export,
)
from dsocr.commands.scoring import (
    report as report,
)
from dsocr.config import RunConfig as RunConfig
from dsocr.config import load_config as load_config
from dsocr.data.check import Findings as Findings
from dsocr.data.convert import ConvertReport as ConvertReport
from dsocr.data.convert import convert as convert
from dsocr.data.dataset import Dataset as Dataset
from dsocr.data.prepare import prepare as prepare
from dsocr.doctor import Fact as Fact
from dsocr.doctor import examine as examine
from dsocr.document import Sample as Sample
from dsocr.document import SampleUnit as SampleUnit
from dsocr.document import Split as Split
from dsocr.document import Unit as Unit
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
from dsocr.evaluation.audit import Audit as Audit
from dsocr.evaluation.compare import Comparison as Comparison
from dsocr.evaluation.layout_scores import LayoutScores as LayoutScores
from dsocr.evaluation.learning_curve import Forecast as Forecast
from dsocr.evaluation.metrics import cer as cer
from dsocr.evaluation.metrics import wer as wer
from dsocr.evaluation.scorecard import Scorecard as Scorecard
from dsocr.formats import source_formats as source_formats
from dsocr.formats.format import Format as Format
from dsocr.inference.confidence import Prediction as Prediction
from dsocr.inference.transcribe import Reader as Reader
from dsocr.inference.transcribe import TranscribeReport as TranscribeReport
from dsocr.inference.transcribe import load as load
from dsocr.inference.transcribe import transcribe as transcribe
from dsocr.io.processes import ProgressCallback as ProgressCallback
from dsocr.io.web import FetchOptions as FetchOptions
from dsocr.models.export import Export as Export
from dsocr.models.family import Processor as Processor
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
from dsocr.publish import Publication as Publication
from dsocr.publish import push as push
from dsocr.runs import History as History
from dsocr.server import serve as serve
from dsocr.text import TextPolicy as TextPolicy
from dsocr.training.align import AlignReport as AlignReport
from dsocr.training.dry_run import DryRun as DryRun
from dsocr.training.preview import CheckReport as CheckReport
from dsocr.training.preview import check as check
from dsocr.training.preview import preview as preview
from dsocr.training.trainer import (
    Batch as Batch,
)
from dsocr.training.trainer import Callback as Callback
from dsocr.training.trainer import (
    LossFunction as LossFunction,
)
from dsocr.training.trainer import (
    Trainer as Trainer,
)
from dsocr.training.trainer import (
    TrainerState as TrainerState,
)
from dsocr.workbench import open_workbench as open_workbench

__version__: str
__all__: list[str]
