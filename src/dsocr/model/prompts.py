"""The prompts of DeepSeek-OCR, by name, in the authors' wording and without the trailing space their code strips."""

from dsocr.errors import ConfigError

IMAGE = "<image>"
"""Where the image stands in a prompt; the tokenizer's id for it fills the image slots."""

_PROMPT_BY_NAME = {
    "free_ocr": f"{IMAGE}\nFree OCR.",
    "ocr": f"{IMAGE}\n<|grounding|>OCR this image.",
    "markdown": f"{IMAGE}\n<|grounding|>Convert the document to markdown.",
    "figure": f"{IMAGE}\nParse the figure.",
    "describe": f"{IMAGE}\nDescribe this image in detail.",
}


def find_prompt(name: str) -> str:
    """The prompt of that name, or the text itself where it holds `<image>`.

    Raises ConfigError for a name that is not known and for a text without exactly one `<image>`.
    """
    if IMAGE not in name:
        if name not in _PROMPT_BY_NAME:
            names = ", ".join(_PROMPT_BY_NAME)
            raise ConfigError(
                f"input.prompt: {name!r} is not the name of a prompt",
                hint=f"the names are {names}; a prompt of your own must hold {IMAGE}",
            )
        return _PROMPT_BY_NAME[name]
    if name.count(IMAGE) != 1:
        raise ConfigError(f"input.prompt: must hold {IMAGE} once, not {name.count(IMAGE)} times")
    return name.strip()
