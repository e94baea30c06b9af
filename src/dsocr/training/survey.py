"""What is found in a dataset as a base will see it; needs no torch."""

from dsocr.data.checks import Survey, survey_dataset
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import Progress
from dsocr.model.encoding import Encoder


def survey_for_base(
    dataset: Dataset,
    encoder: Encoder,
    *,
    max_text_tokens: int | None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Survey:
    """What is found in a dataset that is to be shown to a base through `encoder`; `workers` as `survey_dataset` has."""
    return survey_dataset(
        dataset,
        unknown_characters=encoder.unknown_characters,
        count_tokens=lambda text: len(encoder.text_ids(text)),
        max_text_tokens=max_text_tokens,
        distortion=encoder.resolution.distortion,
        workers=workers,
        progress=progress,
    )
