"""Samples of a split laid out on sheets, as the Trainer wants them: grouped anew every epoch, varied line by line."""

import math
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
from dsocr.model.vision_cache import VisionCache
from dsocr.samples import Sample
from dsocr.training.collator import EncodedSamples, with_features
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
        self._grouped: dict[int, list[list[int]]] = {}
        self._cache: VisionCache | None = None
        self._views = 0

    def __len__(self) -> int:
        return len(self._epochs)

    def __getitem__(self, index: int) -> Encoded:
        sheet = self.sheets()[index]
        if self._cache is not None:
            return self._seen(self._cache, index)
        if len(sheet) == 1:
            return self.lines[sheet[0]]
        return encode_sheet(self._encoder, [self.lines.varied(line) for line in sheet], self._text(sheet))

    @property
    def encoder(self) -> Encoder:
        """What encodes them."""
        return self._encoder

    def sheets(self) -> list[list[int]]:
        """The lines on each sheet of this epoch, top to bottom, by their places in the split."""
        return self._sheets_of(self._view)

    @property
    def lengths(self) -> Sequence[int]:
        """The tokens of the text on each sheet of this epoch; images take equally many."""
        return [sum(self._tokens[line] for line in sheet) for sheet in self.sheets()]

    def set_epoch(self, epoch: int) -> None:
        """Group the lines, and vary their images, anew."""
        self.lines.set_epoch(epoch)

    def use_cache(self, cache: VisionCache, views: int) -> None:
        """Take from now on what the vision towers say from a cache; epoch e shows the sheets of e modulo `views`."""
        self._cache = cache
        self._views = views

    def keys(self, index: int) -> list[str]:
        """The names in the cache of what stands in this place in each of the epochs that are kept."""
        assert self._cache is not None
        return [self._key(self._cache, index, view) for view in range(self._views)]

    def shown(self, index: int, view: int) -> Encoded:
        """A sheet of an epoch that is kept, with its pixels."""
        sheet = self._sheets_of(view)[index]
        return encode_sheet(self._encoder, [self.lines.varied_as(line, view) for line in sheet], self._text(sheet))

    def look(self, indices: Sequence[int]) -> None:
        """Have the vision towers look at these sheets as they are in this epoch, in one batch, and keep it."""
        assert self._cache is not None
        named = {self._key(self._cache, index, self._view): index for index in indices}
        self._cache.fill({key: self.shown(index, self._view) for key, index in named.items()})

    def forget(self) -> None:
        """Give back the memory of what was remembered."""
        self.lines.forget()

    @property
    def _view(self) -> int:
        return self.lines.epoch % self._views if self._views else self.lines.epoch

    def _sheets_of(self, view: int) -> list[list[int]]:
        if view not in self._grouped:  # also in a worker process, which shares the epoch's number alone
            if self._cache is None:
                self._grouped.clear()
            self._grouped[view] = self._epochs.of_epoch(view)
        return self._grouped[view]

    def _seen(self, cache: VisionCache, index: int) -> Encoded:
        key = self._key(cache, index, self._view)
        features = cache.get(key) or cache.fill({key: self.shown(index, self._view)})[key]
        return with_features(self._encoder, features, self._text(self.sheets()[index]))

    def _key(self, cache: VisionCache, index: int, view: int) -> str:
        made_of = [self.lines.made_of(line, view) for line in self._sheets_of(view)[index]]
        # A line that stands alone is the one that is kept without sheets.
        return cache.key(made_of[0] if len(made_of) == 1 else "\n".join(["sheet", *made_of]))

    def _text(self, sheet: Sequence[int]) -> str:
        return "\n".join(self._texts[line] for line in sheet)


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
    """The configuration with about as many sheets a step as hold `samples_per_step` lines, so that it learns as much.

    `samples_per_forward` stays, or is lowered so that a step, or each process's part of one, is made of equal batches:
    what is in memory at once are images. Raises ConfigError where a step cannot be parted evenly.
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
    if lines == sheets:
        per_forward = max(n for n in range(1, training.samples_per_forward + 1) if a_process % n == 0)
    else:
        # Not the exact number: 11 sheets could only be shown one by one.
        wanted = max(1, round(a_process * sheets / lines))
        forwards = math.ceil(wanted / training.samples_per_forward)
        per_forward = max(1, round(wanted / forwards))
        a_process = forwards * per_forward
    per_step = a_process * processes
    counted = training.model_copy(update={"samples_per_step": per_step, "samples_per_forward": per_forward})
    return config.model_copy(update={"training": counted})
