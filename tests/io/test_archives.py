"""Zip archives are unpacked completely; hostile ones are rejected with nothing written."""

import os
import stat
import tracemalloc
import unicodedata
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dsocr.data.prepare import prepare
from dsocr.data.sources import open_source
from dsocr.document import Skipped, SkipReason, Split
from dsocr.errors import DataError
from dsocr.io.archives import entry_name, unpack
from tests.data.making import alto, alto_line, picture, write
from tests.raising import raises_code

MB = 1024 * 1024


def archive(path: Path, files: Mapping[str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return path


def everything_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_hidden_files_stay_behind_and_archives_inside_stay_packed(tmp_path: Path) -> None:
    inner = archive(tmp_path / "i.zip", {"x.txt": "x"}).read_bytes()
    files: dict[str, bytes | str] = {"__MACOSX/._a": "x", ".DS_Store": "x", "a.txt": "а", "d/i.ZIP": inner}
    assert unpack(archive(tmp_path / "a.zip", files), tmp_path / "out") == ["d/i.ZIP"]
    assert everything_in(tmp_path / "out") == ["a.txt", "d", "d/i.ZIP"]


Make = Callable[[Path], object]


def names(*names: str) -> Make:
    """An archive with files of these names."""
    return lambda path: archive(path, dict.fromkeys(names, "x"))


def entry_of_kind(kind: int) -> Make:
    """An archive with something that is not a file, and a file below it."""

    def make(path: Path) -> None:
        entry = zipfile.ZipInfo("link")
        entry.create_system = 3
        entry.external_attr = (kind | 0o777) << 16
        with zipfile.ZipFile(path, "w") as file:
            file.writestr(entry, "/etc/passwd")
            file.writestr("link/x.txt", "x")

    return make


def header(field: int, value: int, size: int = 2) -> Make:
    """An archive of one file, with a field changed in its local header and in the central directory."""

    def make(path: Path) -> None:
        data = bytearray(archive(path, {"a.txt": b"x" * 1000}).read_bytes())
        for start in (data.index(b"PK\x03\x04") + field, data.index(b"PK\x01\x02") + field + 2):
            data[start : start + size] = value.to_bytes(size, "little")
        path.write_bytes(data)

    return make


def wrong_checksum(path: Path) -> None:
    archive(path, {"a.txt": bytes(range(256)), "b.txt": b"b" * 99}, zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(b"bbbb", b"bbxb"))


def ten_gigabytes(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.txt", b"x")
        file.filelist[0].file_size = 10 * 1024 * MB


FLAGS, METHOD, SIZE = 6, 8, 22


@pytest.mark.parametrize(
    ("make", "code"),
    [
        pytest.param(names("good.txt", "../evil.txt"), "path-outside", id="zip slip"),
        pytest.param(names("..\\evil.txt"), "path-outside", id="zip slip with backslashes"),
        pytest.param(names("page:2.txt"), "archive-entry", id="colon"),
        pytest.param(names("a/NUL"), "archive-entry", id="a device in a folder"),
        pytest.param(names("a/com².png"), "archive-entry", id="a device with a raised digit"),
        pytest.param(names("a./b.txt"), "archive-entry", id="a dot at the end"),
        pytest.param(names("a \\b.txt"), "archive-entry", id="a space at the end"),
        pytest.param(names("what?.txt"), "archive-entry", id="question mark"),
        pytest.param(names("a\tb.txt"), "archive-entry", id="control character"),
        pytest.param(names("я" * 128 + ".txt"), "archive-entry", id="too long"),
        pytest.param(names("a.txt", "A.TXT"), "archive-entry", id="names differ in case"),
        pytest.param(names("\u0439.txt", "\u0438\u0306.txt"), "archive-entry", id="composed and decomposed"),
        pytest.param(names("a/b.txt", "a\\b.txt"), "archive-entry", id="two kinds of slashes"),
        pytest.param(names("a", "A/b.txt"), "archive-entry", id="a file and a folder"),
        pytest.param(entry_of_kind(stat.S_IFLNK), "archive-entry", id="link"),
        pytest.param(entry_of_kind(stat.S_IFIFO), "archive-entry", id="pipe"),
        pytest.param(header(FLAGS, 1), "archive-encrypted", id="encrypted"),
        pytest.param(header(SIZE, 2000, 4), "archive-damaged", id="shorter than declared"),
        pytest.param(header(SIZE, 10, 4), "archive-damaged", id="longer than declared"),
        pytest.param(header(METHOD, 14), "archive-entry", id="LZMA"),
        pytest.param(ten_gigabytes, "too-large", id="ten gigabytes"),
        pytest.param(wrong_checksum, "archive-damaged", id="a byte changed in the middle"),
        pytest.param(lambda path: path.write_bytes(b"PK\x03\x04 and no more"), "archive-damaged", id="cut off"),
        pytest.param(lambda path: path.write_bytes(b""), "archive-damaged", id="empty file"),
        pytest.param(lambda path: path.write_bytes(b"PK\x05\x06" + bytes(18)), "archive-empty", id="nothing in it"),
    ],
)
def test_an_unsafe_archive_is_rejected_and_nothing_is_written(tmp_path: Path, make: Make, code: str) -> None:
    make(tmp_path / "a.zip")
    with raises_code(code) as error:
        unpack(tmp_path / "a.zip", tmp_path / "in" / "out")
    assert (error.value.where, bool(error.value.hint)) == (str(tmp_path / "a.zip"), True)
    assert everything_in(tmp_path) == ["a.zip", "in"]


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("archives.MAX_ENTRIES", 2),
        ("archives.MAX_ENTRY_BYTES", MB - 1),
        ("archives.MAX_BYTES", 2 * MB),
        ("budget.RATIO_FREE_BYTES", MB),
    ],
)
def test_an_archive_over_a_limit_is_rejected(
    tmp_path: Path, limit: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = archive(tmp_path / "a.zip", dict.fromkeys("abc", bytes(MB)))
    unpack(source, tmp_path / "within limits")
    monkeypatch.setattr(f"dsocr.io.{limit}", value)
    with raises_code("too-large"):
        unpack(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_reported_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr.io.archives.shutil.disk_usage", lambda _: type("Usage", (), {"free": MB}))
    source = archive(tmp_path / "a.zip", dict.fromkeys("abc", bytes(MB)))
    with raises_code("disk-full") as error:
        unpack(source, tmp_path / "out")
    assert "another disk" in (error.value.hint or "")
    assert everything_in(tmp_path) == ["a.zip"]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6), st.booleans())
def test_an_archive_with_any_bytes_changed_is_unpacked_or_rejected(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], packed: bool
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    method = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    source = archive(folder / "a.zip", {"a/b.txt": b"text" * 20, "страница.xml": "<да/>"}, method)
    data = bytearray(source.read_bytes())
    for place, value in changes:
        data[place % len(data)] = value
    source.write_bytes(data)
    try:
        unpack(source, folder / "in" / "out")
    except DataError:
        assert everything_in(folder) in (["a.zip"], ["a.zip", "in"])
    else:
        assert all(name.startswith(("a.zip", "in")) for name in everything_in(folder))


def test_memory_stays_flat(tmp_path: Path) -> None:
    source = archive(tmp_path / "a.zip", {"a.bin": bytes(16 * MB)})
    tracemalloc.start()
    unpack(source, tmp_path / "out")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "out" / "a.bin").stat().st_size == 16 * MB
    assert peak < 4 * MB


def unflagged(raw: bytes) -> zipfile.ZipInfo:
    """An entry whose name has these bytes and does not say in which encoding."""
    return zipfile.ZipInfo(raw.decode("cp437"))


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        pytest.param(
            unflagged("Письмо №1/лист.jpg".replace("№", "#").encode("cp866")), "Письмо #1/лист.jpg", id="cp866"
        ),
        pytest.param(unflagged("ёж.txt".encode("cp866")), "ёж.txt", id="cp866 ё"),
        pytest.param(unflagged("страница.xml".encode()), "страница.xml", id="UTF-8 without the flag, as on a Mac"),
        pytest.param(unflagged("и\u0306од.xml".encode()), "йод.xml", id="decomposed, as on a Mac"),
        pytest.param(unflagged("café.jpg".encode("cp437")), "café.jpg", id="cp437"),
        pytest.param(unflagged(b"page_1.jpg"), "page_1.jpg", id="ASCII"),
    ],
)
def test_names_are_made_readable(entry: zipfile.ZipInfo, name: str) -> None:
    assert entry_name(entry) == name


@given(
    st.text("абвгдеёжзийклмнопрстуфхцчшщъыьэюя0123456789 _-().", min_size=1, max_size=20),
    st.sampled_from([str.lower, str.title, str.upper]),
    st.booleans(),
)
@example("раа", str.lower, False)
def test_every_russian_name_of_windows_and_of_a_mac_survives(
    name: str, write_name: Callable[[str], str], is_mac: bool
) -> None:
    name = write_name(name)
    raw = unicodedata.normalize("NFD", name).encode() if is_mac else name.encode("cp866")
    assert entry_name(unflagged(raw)) == name


def test_unpacked_files_are_removed_after_an_error_too(tmp_path: Path) -> None:
    source = archive(tmp_path / "a.zip", {"notes/readme.md": "nothing to read"})
    with raises_code("no-format-found") as error:
        prepare(source, tmp_path / "new" / "mine")
    assert error.value.where == str(source)
    assert everything_in(tmp_path) == ["a.zip", "new"]


def test_archives_inside_are_counted(tmp_path: Path) -> None:
    picture(tmp_path / "p.png")
    inner = archive(tmp_path / "i.zip", {"x.txt": "x"}).read_bytes()
    page: dict[str, bytes | str] = {
        "p.png": (tmp_path / "p.png").read_bytes(),
        "p.xml": alto(alto_line("да")),
        "more.zip": inner,
    }
    source = archive(tmp_path / "a.zip", page)
    report = prepare(source, tmp_path / "out", split="1/0/0")
    assert [(item.reason, item.where) for item in report.report.skipped] == [(SkipReason.ARCHIVE, "more.zip")]
    with raises_code("archive"):
        prepare(source, tmp_path / "strict", strict=True)


def test_images_in_an_archive_beside_their_tables_are_found(tmp_path: Path) -> None:
    source = tmp_path / "s"
    images = {f"images/{name}.png": picture(tmp_path / f"{name}.png").read_bytes() for name in "ab"}
    write(source / "train.tsv", "image\ttext\na.png\tда\nb.png\tнет\n")
    archive(source / "images.zip", images)
    card = prepare(source, tmp_path / "out", split="1/0/0").card
    assert (card.source, card.skipped, card.splits[Split.TRAIN].samples) == ("s", {}, 2)
    assert everything_in(source) == ["images.zip", "train.tsv"]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.skipif(os.name == "nt", reason="links need a right that most accounts lack")
def test_a_link_beside_an_archive_is_not_followed_out_of_the_folder(tmp_path: Path) -> None:
    source = tmp_path / "s"
    write(source / "train.tsv", "image\ttext\na.png\tда\nsecret.bmp\tнет\n")
    archive(source / "images.zip", {"a.png": picture(tmp_path / "a.png").read_bytes()})
    (source / "secret.txt").symlink_to(write(tmp_path / "secret.txt", "СЕКРЕТ"))
    with open_source(source, tmp_path / "work") as held:
        assert everything_in(held.path) == ["images", "images/a.png", "train.tsv"]
        assert [item.where for item in held.items if isinstance(item, Skipped)] == ["secret.txt"]


def test_archives_of_a_source_share_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s").mkdir()
    for name in ("a.zip", "b.zip"):
        archive(tmp_path / "s" / name, {"x.txt": bytes(MB)})
    monkeypatch.setattr("dsocr.data.sources.MAX_BYTES", MB)
    with raises_code("too-large", str(tmp_path / "s" / "b.zip")), open_source(tmp_path / "s", tmp_path / "w"):
        pass


@pytest.mark.parametrize("name", ["scans.rar", "scans.7z", "scans.tar", "scans.tar.gz", "scans.TGZ", "scans.tar.xz"])
def test_another_kind_of_archive_is_not_taken_for_a_table(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"Rar!\x1a\x07\x00")
    with raises_code("archive-unsupported"):
        prepare(tmp_path / name, tmp_path / "out")
