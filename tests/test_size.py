"""The count of lines and tokens that `make check` holds the project to."""

from pathlib import Path

from size import compare, count


def test_tokens_do_not_depend_on_how_lines_are_packed(tmp_path: Path) -> None:
    for name, text in (("long", "x = [\n    1,  # one\n    2,\n]\n"), ("packed", "x = [1, 2,]\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").write_text(text, encoding="utf-8")
    assert (count(tmp_path / "long"), count(tmp_path / "packed")) == ((4, 8), (1, 8))


def test_a_count_above_its_limit_is_named() -> None:
    limits = {"src-lines": 10, "src-tokens": 99}
    assert compare(limits, {"src-lines": 10, "src-tokens": 99}) == []
    (fault,) = compare(limits, {"src-lines": 11, "src-tokens": 99})
    assert fault.startswith("src lines: 11 ")
