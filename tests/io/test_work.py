"""A folder is complete or absent, whatever fails while it is written, and every later damage to it is noticed."""

import contextlib
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from dsocr.io import work
from dsocr.io.work import (
    MANIFEST,
    Journal,
    explain_disk_errors,
    find_damage,
    remove_folder,
    require_free_output,
    resumable_work,
    rewrite_file,
    work_path,
    write_file,
    write_folder,
    writing_folder,
)
from tests.raising import raises_code

FILES = {"a.json": b"{}\n", "b.safetensors": bytes(range(200))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "folder", FILES.items())
    return tmp_path / "folder"


def assert_unchanged(folder: Path) -> None:
    """The folder holds what was first written, and nothing is beside it."""
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != MANIFEST} == FILES
    assert find_damage(folder) is None
    assert list(folder.parent.iterdir()) == [folder]


def test_a_written_folder_has_the_files_and_verifies(folder: Path) -> None:
    assert_unchanged(folder)
    write_folder(folder, [("c", b"new")])
    assert sorted(path.name for path in folder.iterdir()) == ["c", MANIFEST]
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-2]), id="truncated"),
        pytest.param(lambda path: path.write_bytes(b""), id="emptied"),
        pytest.param(
            lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 4]) + path.read_bytes()[1:]), id="bit"
        ),
        pytest.param(Path.unlink, id="removed"),
    ],
)
def test_a_damaged_file_is_named(folder: Path, name: str, damage: Callable[[Path], None]) -> None:
    damage(folder / name)
    assert name in str(find_damage(folder))


def test_a_flipped_bit_of_any_byte_of_the_manifest_is_noticed_or_changes_nothing(folder: Path) -> None:
    whole = (folder / MANIFEST).read_bytes()
    for position in range(len(whole)):
        content = bytearray(whole)
        content[position] ^= 1 << position % 7
        (folder / MANIFEST).write_bytes(content)
        if find_damage(folder) is None:
            assert json.loads(content) == json.loads(whole)


def test_a_file_that_the_manifest_does_not_list_is_named(folder: Path) -> None:
    (folder / ".DS_Store").write_bytes(b"")
    assert find_damage(folder) is None
    (folder / "calibration.json").write_bytes(b"{}")
    assert find_damage(folder) == f"calibration.json is not in {MANIFEST}"


@pytest.mark.parametrize("killed_after", range(4))
def test_a_file_that_is_written_again_is_never_taken_for_damaged(
    folder: Path, killed_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, calls = Path.replace, iter(range(9))

    def kill(path: Path, target: Path) -> Path:
        if next(calls) == killed_after:
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(Path, "replace", kill)
        rewrite_file(folder / "a.json", "[]\n")
    assert find_damage(folder) is None
    assert (folder / "a.json").read_bytes() == (b"[]\n" if killed_after > 1 else FILES["a.json"])
    (folder / "a.json").write_bytes(b"[1]")
    assert "a.json" in str(find_damage(folder))


@pytest.mark.parametrize("killed_after", range(6))
def test_a_kill_while_the_work_folder_is_removed_leaves_nothing_for_ever(
    tmp_path: Path, killed_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(99))

    def kill(inner: Callable[..., None]) -> Callable[..., None]:
        def remove(path: str | Path, **options: object) -> None:
            if (".out.work" in str(path) or "dir_fd" in options) and next(calls) == killed_after:
                raise KeyboardInterrupt
            inner(path, **options)

        return remove

    out = tmp_path / "out"
    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt), resumable_work(out) as work:
        work.draft.mkdir()
        (work.parts / "1").touch()
        for name in ("unlink", "rmdir"):
            patch.setattr(os, name, kill(getattr(os, name)))
    assert out.is_dir()
    (out / "a.txt").touch()
    with raises_code("output-exists"):
        require_free_output(out, "conversion", lambda folder: ["a.txt"], overwrite=False)
    assert list(tmp_path.iterdir()) == [out]


def test_what_a_kill_after_the_end_left_is_cleaned_up_by_the_next_look(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with writing_folder(out) as draft:
        (draft / "a.txt").touch()
    work = work_path(out)
    work.mkdir()
    Journal(work / "journal.sqlite").close()
    (work / "written").touch()  # as the killed process had done
    with raises_code("output-exists"):
        require_free_output(out, "conversion", lambda folder: ["a.txt"], overwrite=False)
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("failing", [0, 2, 4, 5], ids=["first file", "second file", "manifest", "draft folder"])
@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(errno.ENOSPC, "disk-full", id="full"),
        pytest.param(errno.EDQUOT, "disk-full", id="quota used up"),
        pytest.param(errno.EROFS, "write-failed", id="read-only"),
        pytest.param(errno.EIO, "write-failed", id="failing disk"),
    ],
)
def test_a_failed_write_leaves_the_old_folder_and_nothing_else(
    folder: Path, failing: int, number: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(10))

    def fsync(descriptor: int) -> None:
        if next(calls) == failing:
            raise OSError(number, "failed")

    monkeypatch.setattr("os.fsync", fsync)
    with raises_code(code) as error:
        write_folder(folder, [("a.json", b"new"), ("b.safetensors", b"new")])
    assert error.value.hint
    assert_unchanged(folder)


def test_a_path_that_is_too_long_is_named(tmp_path: Path) -> None:
    with raises_code("path-too-long") as error, explain_disk_errors(tmp_path):
        write_file(tmp_path / ("x" * 300), "content")
    assert error.value.hint
    with raises_code("path-too-long") as error:
        write_folder(tmp_path / ("x" * 300), [("a.json", b"new")])
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_windows_does_not_find_for_its_length_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without long paths Windows says "not found" from 260 characters on, 248 for folders."""
    monkeypatch.setattr(work, "os", SimpleNamespace(name="nt"))
    for length, expected in ((300, raises_code("path-too-long")), (2, raises_code("write-failed"))):
        path = tmp_path / ("x" * length)
        with expected, explain_disk_errors(tmp_path):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))


def test_a_failed_rename_puts_the_old_folder_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def fail_for_drafts(path: Path, target: Path) -> Path:
        if target == folder and (path / "a.json").read_bytes() == b"new":
            raise OSError(errno.EACCES, "in use", str(path))
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", fail_for_drafts)
    with raises_code("write-failed"):
        write_folder(folder, [("a.json", b"new")])
    assert_unchanged(folder)


@pytest.mark.parametrize("attempts", [3, 99], ids=["for a moment", "for long"])
def test_a_folder_that_another_program_has_open_is_renamed_once_it_is_closed(
    folder: Path, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Windows does while a virus scanner looks at a file that was just written."""
    replace, failures, pauses = Path.replace, iter(range(attempts)), list[float]()

    def in_use(path: Path, target: Path) -> Path:
        if path == folder and next(failures, None) is not None:
            error = PermissionError(errno.EACCES, "used by another process", str(path))
            error.winerror = 32  # type: ignore[attr-defined, unused-ignore]
            raise error
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", in_use)
    monkeypatch.setattr("time.sleep", pauses.append)
    if attempts == 99:
        with raises_code("write-failed"):
            write_folder(folder, [("a.json", b"new")])
        assert_unchanged(folder)
    else:
        write_folder(folder, [("a.json", b"new")])
        assert (folder / "a.json").read_bytes() == b"new"
    assert 0 < sum(pauses) < 4


def test_files_that_do_not_read_back_do_not_replace_the_old_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def lossy(path: Path, target: Path) -> Path:
        replace(path, target)
        if target.name == "a.json":
            target.write_bytes(b"lost")
        return target

    monkeypatch.setattr(Path, "replace", lossy)
    with raises_code("disk-unreliable"):
        write_folder(folder, [("a.json", b"new")])
    assert_unchanged(folder)


def test_an_interrupted_removal_leaves_no_half_under_the_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.rmtree", lambda *args, **kwargs: None)
    remove_folder(folder)
    assert [path.name.startswith(".") for path in folder.parent.iterdir()] == [True]
