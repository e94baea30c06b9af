"""Samples of a split laid out on sheets, as the Trainer wants them: grouped anew every epoch, varied line by line."""

from collections.abc import Sequence
from dataclasses import replace

from torch.utils.data import Dataset

from dsocr.config import RunConfig
from dsocr.data.images import upright_size
from dsocr.data.sheets import EpochSheets, SheetLine, hand_of
from dsocr.errors import ConfigError
from dsocr.inference.sheets import LinesPerSheet, encode_sheet, sheet_limits
from dsocr.model.encoding import Encoded, Encoder
from dsocr.model.sheets import line_height
from dsocr.samples import Sample
from dsocr.training.collator import EncodedSamples
from dsocr.training.lengths import SampleLength


class SheetSamples(Dataset[Encoded]):
    """The sheets of one epoch as model inputs; `lines` are their samples, varied as those are.

    A sheet's text is that of its lines, joined by line breaks; `max_text_tokens` closes it early. A line that stands
    alone is shown as it is without sheets; the share `alone` of the lines does whatever room there is.
    """

    def __init__(
        self,
        lines: EncodedSamples,
        samples: Sequence[Sample],
        encoder: Encoder,
        lines_per_sheet: LinesPerSheet,
        *,
        max_text_tokens: int | None = None,
        seed: int = 0,
        alone: float = 0.0,
    ) -> None:
        self.lines = lines
        self._texts = [sample.text for sample in samples]
        self._encoder = encoder
        limits = sheet_limits(encoder.resolution, lines_per_sheet, max_text_tokens)
        of_lines = sheet_lines(samples, encoder)
        self._tokens = [line.tokens for line in of_lines]
        self._epochs = EpochSheets(of_lines, limits, seed=seed, alone=alone)
        self._epoch = 0
        self._sheets = self._epochs.of_epoch(0)

    def __len__(self) -> int:
        return len(self._epochs)

    def __getitem__(self, index: int) -> Encoded:
        sheet = self.sheets()[index]
        if len(sheet) == 1:
            return self.lines[sheet[0]]
        text = "\n".join(self._texts[line] for line in sheet)
        return encode_sheet(self._encoder, [self.lines.varied(line) for line in sheet], text)

    def sheets(self) -> list[list[int]]:
        """The lines on each sheet of this epoch, top to bottom, by their places in the split."""
        if self._epoch != self.lines.epoch:  # also in a worker process, which shares the number alone
            self._epoch = self.lines.epoch
            self._sheets = self._epochs.of_epoch(self._epoch)
        return self._sheets

    @property
    def lengths(self) -> Sequence[int]:
        """The tokens of the text on each sheet of this epoch; images take equally many."""
        return [sum(self._tokens[line] for line in sheet) for sheet in self.sheets()]

    def set_epoch(self, epoch: int) -> None:
        """Group the lines, and vary their images, anew."""
        self.lines.set_epoch(epoch)


def sheet_lines(samples: Sequence[Sample], encoder: Encoder) -> list[SheetLine[int]]:
    """The samples by their places, with the room and the tokens that each takes; one of several lines stands alone."""
    return [
        SheetLine(
            place,
            None if "\n" in sample.text else hand_of(sample),
            line_height(upright_size(sample.image), encoder.resolution),
            len(encoder.answer_ids(sample.text)),  # its end token makes up for the line break
        )
        for place, sample in enumerate(samples)
    ]


def lengths_on_sheets(lengths: Sequence[SampleLength], sheets: Sequence[Sequence[int]]) -> list[SampleLength]:
    """The lengths of sheets, from those of their lines; the end token of each line but one is a line break."""
    laid_out = []
    for sheet in sheets:
        first, text = lengths[sheet[0]], sum(lengths[line].text for line in sheet)
        laid_out.append(replace(first, text=text, sequence=first.sequence - first.text + text))
    return laid_out


def counted_in_sheets(config: RunConfig, lines: int, sheets: int, processes: int = 1) -> RunConfig:
    """The configuration with as many sheets a step as hold `samples_per_step` lines, so that a step learns as much.

    `samples_per_forward` stays, as far as it divides a step, or each process's part of one: what is in memory at once
    are images. Raises ConfigError where a step cannot be parted evenly.
    """
    training = config.training
    if training.samples_per_step % processes:
        raise ConfigError(
            f"training.samples_per_step: {training.samples_per_step} samples cannot be shared by {processes} processes",
            hint=f"set it to a multiple of {processes}",
        )
    if lines == sheets and processes == 1:
        return config
    a_process = training.samples_per_step // processes
    if lines != sheets:
        a_process = max(1, round(a_process * sheets / lines))
    per_step = a_process * processes
    per_forward = max(n for n in range(1, training.samples_per_forward + 1) if a_process % n == 0)
    counted = training.model_copy(update={"samples_per_step": per_step, "samples_per_forward": per_forward})
    return config.model_copy(update={"training": counted})
