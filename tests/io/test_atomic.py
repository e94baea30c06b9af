import errno
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsocr.io.atomic import MANIFEST, find_damage, remove_folder, write_folder
from tests.raising import raises_code

FILES = {"a.json": b"{}\n", "b.safetensors": bytes(range(200))}


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[0] ^= 4
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_folder(tmp_path / "place", FILES.items())
    return tmp_path / "place"


def test_a_sealed_folder_holds_the_files_and_verifies(place: Path) -> None:
    assert {path.name: path.read_bytes() for path in place.iterdir() if path.name != MANIFEST} == FILES
    assert find_damage(place) is None
    assert list(place.parent.iterdir()) == [place]


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(truncate, id="truncated"),
        pytest.param(lambda path: path.write_bytes(b""), id="emptied"),
        pytest.param(flip, id="one bit flipped"),
        pytest.param(Path.unlink, id="removed"),
    ],
)
def test_a_damaged_file_is_named(place: Path, name: str, spoil: Callable[[Path], None]) -> None:
    spoil(place / name)
    assert name in str(find_damage(place))


def test_every_flipped_bit_of_the_manifest_is_noticed_or_says_the_same(place: Path) -> None:
    whole = (place / MANIFEST).read_bytes()
    for position in range(len(whole)):
        for bit in range(8):
            content = bytearray(whole)
            content[position] ^= 1 << bit
            (place / MANIFEST).write_bytes(content)
            if find_damage(place) is None:
                assert json.loads(content) == json.loads(whole)


def test_files_that_people_may_change_are_not_sealed(tmp_path: Path) -> None:
    write_folder(tmp_path / "place", FILES.items(), unhashed={"a.json"})
    (tmp_path / "place" / "a.json").write_text("{'changed': 1}", encoding="utf-8")
    assert find_damage(tmp_path / "place") is None


def test_a_manifest_cannot_name_files_elsewhere(place: Path) -> None:
    (place.parent / "secret").write_bytes(b"x")
    (place / MANIFEST).write_text('{"files": {"../secret": {"bytes": 1, "sha256": "0"}}}', encoding="utf-8")
    assert "is missing" in str(find_damage(place))


@pytest.mark.parametrize("failing", range(4))
@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        pytest.param(errno.ENOSPC, "disk-full", id="full"),
        pytest.param(errno.EDQUOT, "disk-full", id="quota used up"),
        pytest.param(errno.EROFS, "not-writable", id="read-only"),
        pytest.param(errno.EIO, "not-writable", id="failing disk"),
    ],
)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    place: Path, failing: int, number: int, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The n-th of the four times that something is forced to the disk fails: two files, the manifest, the folder."""
    calls = iter(range(10))

    def fsync(descriptor: int) -> None:
        if next(calls) == failing:
            raise OSError(number, {errno.EROFS: "Read-only", errno.EIO: "Input/output"}.get(number, "full"))

    monkeypatch.setattr("os.fsync", fsync)
    with raises_code(sentence) as error:
        write_folder(place, [("a.json", b"new"), ("b.safetensors", b"new")])
    assert error.value.hint
    assert (place / "a.json").read_bytes() == FILES["a.json"]
    assert find_damage(place) is None
    assert list(place.parent.iterdir()) == [place]


def test_the_bytes_that_are_needed_count_what_was_not_reached(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    def files() -> Iterator[tuple[str, bytes]]:
        yield "a", bytes(1_000_000)
        yield "b", bytes(2_500_000)

    monkeypatch.setattr("os.fsync", full)
    with raises_code("disk-full"):
        write_folder(place, files())


def test_what_cannot_be_read_back_does_not_take_the_place(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.open

    def lossy(path: Path, mode: str = "r", **kwargs: object) -> object:
        if mode == "wb" and path.name == "a.json":
            path = path.with_name("elsewhere")
        return write(path, mode, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", lossy)
    with raises_code("disk-unreliable"):
        write_folder(place, [("a.json", b"new")])
    assert find_damage(place) is None


def test_a_removal_that_is_cut_off_leaves_no_half_under_the_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.rmtree", lambda *args, **kwargs: None)
    remove_folder(place)
    assert not place.exists()
    assert [path.name.startswith(".") for path in place.parent.iterdir()] == [True]
