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
from dsocr.document import SkipReason, Split
from dsocr.errors import DataError
from dsocr.io.archives import LIMITS, UnpackLimits, entry_name, unpack
from tests.data.making import alto, alto_line, picture, write, write_pages
from tests.raising import raises_code

MB = 1024 * 1024


def archive(path: Path, files: Mapping[str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return path


def everything_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_files_arrive_as_they_were(tmp_path: Path) -> None:
    content = {"a/b.txt": bytes(range(256)) * 9000, "пустой.txt": b"", "c.txt": "да".encode()}
    assert unpack(archive(tmp_path / "a.zip", content), tmp_path / "out") == []
    assert {name: (tmp_path / "out" / name).read_bytes() for name in content} == content


def test_files_added_by_macos_and_hidden_files_are_not_unpacked(tmp_path: Path) -> None:
    unpack(archive(tmp_path / "a.zip", {"__MACOSX/._a": "x", ".DS_Store": "x", "a.txt": "а"}), tmp_path / "out")
    assert everything_in(tmp_path / "out") == ["a.txt"]


def test_archives_inside_are_named_and_not_opened(tmp_path: Path) -> None:
    inner = archive(tmp_path / "i.zip", {"x.txt": "x"}).read_bytes()
    assert unpack(archive(tmp_path / "a.zip", {"d/i.ZIP": inner}), tmp_path / "out") == ["d/i.ZIP"]
    assert everything_in(tmp_path / "out") == ["d", "d/i.ZIP"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("../evil.txt", "path-outside", id="zip slip"),
        pytest.param("a/../../evil.txt", "path-outside", id="zip slip from a folder"),
        pytest.param("..\\evil.txt", "path-outside", id="zip slip with backslashes"),
        pytest.param("/tmp/evil.txt", "path-outside", id="absolute"),
        pytest.param("\\\\server\\share\\evil.txt", "path-outside", id="a share of Windows"),
        pytest.param("C:evil.txt", "path-outside", id="drive letter"),
        pytest.param("a:b.txt", "path-outside", id="a stream of Windows looks like a drive"),
        pytest.param("page:2.txt", "archive-name", id="colon"),
        pytest.param("con.txt", "archive-name", id="a device"),
        pytest.param("a/NUL", "archive-name", id="a device in a folder"),
        pytest.param("a./b.txt", "archive-name", id="a dot at the end"),
        pytest.param("a \\b.txt", "archive-name", id="a space at the end"),
        pytest.param("what?.txt", "archive-name", id="question mark"),
        pytest.param("a\tb.txt", "archive-name", id="control character"),
        pytest.param("я" * 128 + ".txt", "archive-name", id="too long"),
    ],
)
def test_a_name_that_leads_out_or_fits_nowhere_is_rejected(tmp_path: Path, name: str, message: str) -> None:
    source = archive(tmp_path / "a.zip", {"good.txt": "x", name: "evil"})
    with raises_code(message) as error:
        unpack(source, tmp_path / "in" / "out")
    assert str(error.value).startswith(f"{source}: ")
    assert error.value.hint
    assert everything_in(tmp_path) == ["a.zip", "in"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        pytest.param(["a.txt", "A.TXT"], "archive-collision", id="case"),
        pytest.param(["Йод.txt", "йод.txt"], "archive-collision", id="case of Cyrillic"),
        pytest.param(["\u0439.txt", "\u0438\u0306.txt"], "archive-collision", id="composed and decomposed"),
        pytest.param(["a/b.txt", "a\\b.txt"], "archive-collision", id="two kinds of slashes"),
        pytest.param(["a", "A/b.txt"], "archive-collision", id="a file and a folder"),
    ],
)
def test_names_that_collide_are_rejected(tmp_path: Path, names: list[str], message: str) -> None:
    source = archive(tmp_path / "a.zip", dict.fromkeys(names, "x"))
    with raises_code(message):
        unpack(source, tmp_path / "out")
    assert everything_in(tmp_path) == ["a.zip"]


def entry_of_kind(kind: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo("link")
    entry.create_system = 3
    entry.external_attr = (kind | 0o777) << 16
    return entry


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        pytest.param(stat.S_IFLNK, "archive-entry", id="link"),
        pytest.param(stat.S_IFIFO, "archive-entry", id="pipe"),
        pytest.param(stat.S_IFBLK, "archive-entry", id="device"),
    ],
)
def test_links_and_devices_are_rejected(tmp_path: Path, kind: int, message: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr(entry_of_kind(kind), "/etc/passwd")
        file.writestr("link/x.txt", "x")
    with raises_code(message):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    assert everything_in(tmp_path) == ["a.zip"]


def patched(source: Path, change: Callable[[bytearray, int, int], None]) -> Path:
    """The archive with something rewritten in the local and the central header of its only entry."""
    data = bytearray(source.read_bytes())
    change(data, data.index(b"PK\x03\x04"), data.index(b"PK\x01\x02"))
    source.write_bytes(data)
    return source


def set_flag(data: bytearray, local: int, central: int) -> None:
    data[local + 6] |= 1
    data[central + 8] |= 1


def set_size(size: int) -> Callable[[bytearray, int, int], None]:
    def change(data: bytearray, local: int, central: int) -> None:
        data[local + 22 : local + 26] = data[central + 24 : central + 28] = size.to_bytes(4, "little")

    return change


def set_method(method: int) -> Callable[[bytearray, int, int], None]:
    def change(data: bytearray, local: int, central: int) -> None:
        data[local + 8 : local + 10] = data[central + 10 : central + 12] = method.to_bytes(2, "little")

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(set_flag, "archive-encrypted", id="encrypted"),
        pytest.param(set_size(2000), "archive-damaged", id="shorter than it says"),
        pytest.param(set_size(10), "archive-damaged", id="longer than it says"),
        pytest.param(set_method(14), "archive-entry", id="LZMA"),
        pytest.param(set_method(12), "archive-entry", id="bzip2"),
    ],
)
def test_an_entry_that_cannot_be_trusted_is_rejected(
    tmp_path: Path, change: Callable[[bytearray, int, int], None], message: str
) -> None:
    source = patched(archive(tmp_path / "a.zip", {"a.txt": b"x" * 1000}), change)
    with raises_code(message):
        unpack(source, tmp_path / "out")
    assert everything_in(tmp_path) == ["a.zip"]


def test_ten_gigabytes_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("a.txt", b"x")
        file.filelist[0].file_size = 10 * 1024 * MB
    with raises_code("archive-too-large"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    assert everything_in(tmp_path) == ["a.zip"]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        pytest.param(UnpackLimits(entries=2), "archive-too-large", id="entries"),
        pytest.param(UnpackLimits(total=2 * MB), "archive-too-large", id="size of all"),
        pytest.param(UnpackLimits(free=MB), "archive-too-large", id="ratio"),
    ],
)
def test_too_much_is_rejected(tmp_path: Path, limits: UnpackLimits, message: str) -> None:
    source = archive(tmp_path / "a.zip", dict.fromkeys("abc", bytes(MB)))
    with raises_code(message):
        unpack(source, tmp_path / "out", limits)
    assert everything_in(tmp_path) == ["a.zip"]


def test_a_full_disk_is_reported_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr.io.archives.shutil.disk_usage", lambda _: type("Usage", (), {"free": MB}))
    source = archive(tmp_path / "a.zip", dict.fromkeys("abc", bytes(MB)))
    with raises_code("disk-full") as error:
        unpack(source, tmp_path / "out")
    assert "another disk" in (error.value.hint or "")
    assert everything_in(tmp_path) == ["a.zip"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"PK\x03\x04 and no more", "archive-damaged", id="cut off"),
        pytest.param(b"", "archive-damaged", id="empty file"),
        pytest.param(b"PK\x05\x06" + bytes(18), "archive-empty", id="nothing in it"),
    ],
)
def test_a_file_that_is_not_an_archive_is_an_error(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    with raises_code(message):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    assert everything_in(tmp_path) == ["a.zip"]


def test_damage_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    source = archive(tmp_path / "a.zip", {"a.txt": bytes(range(256)), "b.txt": b"b" * 99}, zipfile.ZIP_STORED)
    source.write_bytes(source.read_bytes().replace(b"bbbb", b"bbxb"))
    with raises_code("archive-damaged"):
        unpack(source, tmp_path / "out")
    assert everything_in(tmp_path) == ["a.zip"]


@settings(max_examples=50, deadline=None)
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
    source = archive(tmp_path / "a.zip", {"a.bin": bytes(48 * MB)})
    tracemalloc.start()
    unpack(source, tmp_path / "out")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "out" / "a.bin").stat().st_size == 48 * MB
    assert peak < 8 * MB


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


@settings(max_examples=200, deadline=None)
@given(
    st.text("абвгдеёжзийклмнопрстуфхцчшщъыьэюя0123456789 _-().", min_size=1, max_size=20),
    st.sampled_from([str.lower, str.title, str.upper]),
)
@example("раа", str.lower)
def test_every_russian_name_of_windows_survives(name: str, written: Callable[[str], str]) -> None:
    name = written(name)
    assert entry_name(unflagged(name.encode("cp866"))) == name


@settings(max_examples=200, deadline=None)
@given(st.text("абвгдеёжзийклмнопрстуфхцчшщъыьэюяАБВЯ0123456789 _-().", min_size=1, max_size=20))
def test_every_russian_name_of_a_mac_survives(name: str) -> None:
    assert entry_name(unflagged(unicodedata.normalize("NFD", name).encode())) == name


def test_an_export_becomes_the_same_dataset_as_its_folder(tmp_path: Path) -> None:
    pages = write_pages(tmp_path / "export", ["анна_1", "anna_2", "vera_1", "vera_2"])
    files = {f"export/doc/{name}": (pages / name).read_bytes() for name in everything_in(pages)}
    source = archive(tmp_path / "export.zip", files)
    card = prepare(source, tmp_path / "mine", split="0.5/0.25/0.25").card
    assert (card.source, card.source_format, card.skipped) == ("export.zip", "alto", {})
    assert card.splits == prepare(pages, tmp_path / "folder", split="0.5/0.25/0.25").card.splits
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export", "export.zip", "folder", "mine"]


def test_unpacked_files_are_removed_after_an_error_too(tmp_path: Path) -> None:
    source = archive(tmp_path / "a.zip", {"notes/readme.md": "nothing to read"})
    with pytest.raises(DataError, match="nothing in this folder can be read") as error:
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


def test_an_archive_beside_images_is_not_opened(tmp_path: Path) -> None:
    write_pages(tmp_path / "s", ["a_1"])
    (tmp_path / "s" / "old.zip").write_bytes(b"no archive at all")
    assert prepare(tmp_path / "s", tmp_path / "out", split="1/0/0").card.skipped == {}


@pytest.mark.parametrize("name", ["scans.rar", "scans.7z", "scans.tar", "scans.tar.gz", "scans.TGZ", "scans.tar.xz"])
def test_another_kind_of_archive_is_not_taken_for_a_table(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"Rar!\x1a\x07\x00")
    with raises_code("archive-unsupported"):
        prepare(tmp_path / name, tmp_path / "out")


def test_limits_let_the_published_collections_in() -> None:
    assert LIMITS.entries > 2 * 64_943, "HKR: an image and an annotation for each of its words"
    assert LIMITS.total > 44_000_000_000, "HWR200"
