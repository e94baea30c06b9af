"""The images of a split as training varies them, opened once; needs no torch."""

from collections.abc import Sequence

from PIL import Image

from dsocr.data.augment import Augmentation, augment, changes, generator
from dsocr.data.images import open_image
from dsocr.model.resolution import Resolution
from dsocr.model.views import shrunk
from dsocr.samples import Sample

REMEMBERED_BYTES = 1 << 30
"""What is kept in memory of images, so that they are opened once and not in every epoch: 1 GiB."""


class VariedImages:
    """The images of samples, each varied as drawn from (seed, view, index).

    One far larger than can be seen at the resolution is shrunk before.
    """

    def __init__(
        self, samples: Sequence[Sample], resolution: Resolution, *, augmentation: Augmentation = 0.0, seed: int = 0
    ) -> None:
        self._samples = samples
        self._resolution = resolution
        self._augmentation = augmentation
        self._seed = seed
        self._opened: dict[int, Image.Image] = {}
        self._room = REMEMBERED_BYTES

    def varied(self, index: int, view: int) -> Image.Image:
        """One variation of the image of a sample; the image itself where nothing is varied."""
        return augment(self._image(index), generator(self._seed, view, index), self._augmentation)

    def takes(self, size: int) -> bool:
        """True, and the room taken, where so many bytes more may be remembered."""
        fits = size <= self._room
        self._room -= size if fits else 0
        return fits

    def forget(self) -> None:
        """Give back the memory of what was remembered."""
        self._opened.clear()
        self._room = REMEMBERED_BYTES

    def _image(self, index: int) -> Image.Image:
        if index in self._opened:
            return self._opened[index]
        image = open_image(self._samples[index].image)
        if changes(self._augmentation):
            image = shrunk(image, self._resolution)
        if self.takes(image.width * image.height * len(image.getbands())):
            self._opened[index] = image
        return image
