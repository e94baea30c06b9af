"""A text policy in a file is read strictly, and options of the command line overrule it."""

from pathlib import Path

import pytest

from dsocr.config import read_policy
from dsocr.errors import ConfigError
from dsocr.text import TextPolicy
from tests.data.making import write
from tests.raising import raises_code

ARCHIVE = """
struck: strip
struck_marks: [["{", "}"], ["<s>", "</s>"]]
unclear: drop-line
unclear_marks: ["[...]"]
line_end_hyphens: join
"""


def test_options_overrule_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "archive.yaml", ARCHIVE)
    marks = {"struck_marks": (("{", "}"), ("<s>", "</s>")), "unclear_marks": ("[...]",)}
    file = TextPolicy(struck="strip", unclear="drop-line", line_end_hyphens="join", **marks)  # type: ignore[arg-type]
    assert read_policy(path, {}) == file
    policy = read_policy(path, {"struck": "keep", "unclear": None, "mojibake": "repair"})
    assert (policy.struck, policy.unclear, policy.mojibake) == ("keep", "drop-line", "repair")
    assert read_policy(TextPolicy(), {"struck": None}) == TextPolicy()


def test_every_problem_is_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "archive.yaml", "struk: strip\nunclear: sometimes\nspaces: no\nstruck_marks: ['<s>']\n")
    with pytest.raises(ConfigError) as error:
        read_policy(path, {})
    message = str(error.value)
    assert message.startswith(f"{path}: 4 problems\n")
    assert "did you mean 'struck'?" in message
    assert all(f"\n  {key}: " in message for key in ("struk", "unclear", "spaces", "struck_marks.0"))


@pytest.mark.parametrize(
    ("content", "code"),
    [
        pytest.param("unclear_marks: ['']\n", "config-invalid", id="an empty mark"),
        pytest.param(None, "input-missing", id="no file"),
        pytest.param("", "config-not-mapping", id="empty"),
        pytest.param("struck, strip", "config-not-mapping", id="no keys"),
    ],
)
def test_a_file_that_is_not_a_policy_is_an_error(tmp_path: Path, content: str | None, code: str) -> None:
    path = tmp_path / "archive.yaml"
    if content is not None:
        write(path, content)
    with raises_code(code, str(path)):
        read_policy(path, {})


def test_a_folder_or_a_wrong_option_is_an_error(tmp_path: Path) -> None:
    with raises_code("config-unreadable") as error:
        read_policy(tmp_path, {})
    assert "struck: strip" in str(error.value.hint)
    with raises_code("config-invalid", "the text policy"):
        read_policy(TextPolicy(), {"struck": "erase"})
