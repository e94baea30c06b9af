"""A text policy in a file is read strictly, and the command line has the last word."""

from pathlib import Path

import pytest

from dsocr.config import read_policy
from dsocr.errors import ConfigError
from dsocr.text import TextPolicy
from tests.data.making import write

ARCHIVE = """
struck: strip
struck_marks: [["{", "}"], ["<s>", "</s>"]]
unclear: drop-line
unclear_marks: ["[...]"]
line_end_hyphens: join
"""


def test_a_file_is_a_policy(tmp_path: Path) -> None:
    assert read_policy(write(tmp_path / "archive.yaml", ARCHIVE), {}) == TextPolicy(
        struck="strip",
        struck_marks=(("{", "}"), ("<s>", "</s>")),
        unclear="drop-line",
        unclear_marks=("[...]",),
        line_end_hyphens="join",
    )


def test_the_command_line_has_the_last_word(tmp_path: Path) -> None:
    path = write(tmp_path / "archive.yaml", ARCHIVE)
    policy = read_policy(path, {"struck": "keep", "unclear": None, "mojibake": "repair"})
    assert (policy.struck, policy.unclear, policy.mojibake) == ("keep", "drop-line", "repair")
    assert read_policy(None, {"struck": None}) == TextPolicy()


def test_every_problem_is_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "archive.yaml", "struk: strip\nunclear: sometimes\nspaces: no\nstruck_marks: ['<s>']\n")
    with pytest.raises(ConfigError) as error:
        read_policy(path, {})
    message = str(error.value)
    assert message.startswith(f"{path}: 4 problems\n")
    assert "\n  struk: unknown key; did you mean 'struck'?" in message
    assert "\n  unclear: must be 'keep', 'strip' or 'drop-line', not 'sometimes'" in message
    assert "\n  spaces: must be 'collapse' or 'keep', not False" in message
    assert "\n  struck_marks.0: " in message


def test_an_empty_mark_is_a_problem_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "archive.yaml", "unclear_marks: ['']\n")
    with pytest.raises(ConfigError, match=r"1 problem\n  a mark must not be empty or white space"):
        read_policy(path, {})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(None, "no such file", id="not there"),
        pytest.param("", "must hold keys and values, such as `struck: strip`", id="empty"),
        pytest.param("struck, strip", "must hold keys and values, such as `struck: strip`", id="no keys"),
    ],
)
def test_a_file_that_is_not_a_policy_is_an_error_with_an_example(
    tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "archive.yaml"
    if content is not None:
        write(path, content)
    with pytest.raises(ConfigError) as error:
        read_policy(path, {})
    assert str(error.value) == f"{path}: {said}"
    assert str(error.value.hint).startswith("a text policy is a YAML file of lines such as `struck: strip`")


def test_a_folder_is_no_policy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder, not a YAML file") as error:
        read_policy(tmp_path, {})
    assert "a text policy is" in str(error.value.hint)


def test_a_wrong_command_line_choice_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"the text policy: 1 problem\n  struck: must be"):
        read_policy(None, {"struck": "erase"})
