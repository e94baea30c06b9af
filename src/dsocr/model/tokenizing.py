"""The tokenizer of a base, and the encoder of which it is a part; needs neither weights nor torch."""

from pathlib import Path

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from dsocr.errors import ModelError
from dsocr.model.architectures import read_config_json, recognise
from dsocr.model.encoding import Encoder
from dsocr.model.finding import find_base
from dsocr.model.prompts import IMAGE, find_prompt
from dsocr.model.resolution import Family, find_resolution, resolutions


def load_encoder(name: str, resolution: str | None, prompt: str, revision: str | None = None) -> Encoder:
    """The encoder of a base without its weights: enough to check a dataset against it."""
    folder, _ = find_base(name, revision)
    architecture = recognise(read_config_json(folder), folder)
    return make_encoder(load_tokenizer(folder), architecture.family, folder, resolution, prompt)


def make_encoder(
    tokenizer: PreTrainedTokenizerBase, family: Family, folder: Path, resolution: str | None, prompt: str
) -> Encoder:
    """The encoder for a resolution and a prompt, each by name; None is the family's default resolution."""
    image_token = image_token_id(tokenizer, folder)
    chosen = find_resolution(family, resolution)
    others = tuple(other for other in resolutions(family) if other != chosen)
    return Encoder(tokenizer, image_token, chosen, find_prompt(prompt), others)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in the folder of a base. Raises ModelError where there is none, or a token is missing."""
    if not (folder / "tokenizer.json").is_file():
        raise ModelError("has no tokenizer.json", where=folder, hint="was it downloaded whole?")
    # Not AutoTokenizer: the published folders name a class with another pre-tokenizer than their tokenizer.json has.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    for name in ("bos", "eos", "pad"):
        if getattr(tokenizer, f"{name}_token_id") is None:
            raise ModelError(f"its tokenizer has no {name} token", where=folder)
    return tokenizer


def image_token_id(tokenizer: PreTrainedTokenizerBase, folder: Path) -> int:
    """The id that fills the image slots. Raises ModelError where the tokenizer of the base in `folder` has none."""
    number = tokenizer.convert_tokens_to_ids(IMAGE)
    if number is None or number == tokenizer.unk_token_id:
        raise ModelError(f"its tokenizer has no {IMAGE} token", where=folder)
    return int(number)
