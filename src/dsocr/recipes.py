"""Recipes: configurations that are shipped with the package, found by their names."""

from pathlib import Path

from dsocr.errors import ConfigError
from dsocr.io.files import shipped_path
from dsocr.io.work import require_free_output, write_file
from dsocr.options import StrPath


def find_recipe(name: StrPath) -> Path | None:
    """Return the file of a recipe, such as `deepseek_ocr` or `configs/deepseek_ocr.yaml`; None if there is none.

    A file or folder of that name in the current directory is no recipe.
    """
    path = Path(name)
    if path.exists() or path.parent not in (Path(), Path("configs")):
        return None
    return _recipes().get(path.stem)


def init(recipe: str, output: StrPath | None = None, *, overwrite: bool = False) -> Path:
    """Write a recipe to edit: a configuration in which each value has its reason.

    Args:
        recipe: Name of the recipe, such as deepseek_ocr; an unknown name lists them.
        output: File to write; RECIPE.yaml by default.
        overwrite: Replace the file.

    Returns:
        The written file.

    Raises:
        ConfigError: There is no such recipe.
        DataError: The file exists.
    """
    known = _recipes()
    if recipe not in known:
        hint = f"recipes are {', '.join(known)}"
        raise ConfigError(f"there is no recipe {recipe!r}", code="input-missing", hint=hint)
    written = Path(output or f"{recipe}.yaml")
    require_free_output(written, "recipe", overwrite=overwrite)
    write_file(written, known[recipe].read_text(encoding="utf-8"))
    return written


def _recipes() -> dict[str, Path]:
    return {path.stem: path for path in sorted(shipped_path("configs").glob("*.yaml"))}
