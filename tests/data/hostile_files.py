"""Small files that would take any amount of memory or time: a function for each, which writes a source with it."""

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pikepdf
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.data.making import page_line, page_xml, picture, png, write
from tests.formats.making_pdf import write_pdf

MB = 2**20
GREY, RGB, RGBA = 0, 2, 6

Make = Callable[[Path], None]


def packed_zeros(size: int) -> bytes:
    packer = zlib.compressobj(9)
    block = bytes(MB)
    return b"".join([packer.compress(block) for _ in range(size // MB)] + [packer.compress(bytes(size % MB))]) + (
        packer.flush()
    )


def png_file(
    width: int, height: int, kind: int = GREY, depth: int = 8, *, data: bool = True, extra: bytes = b""
) -> bytes:
    """A PNG file of zeros; without `data` its header alone, and `extra` are chunks before the pixels."""
    channels = {GREY: 1, RGB: 3, RGBA: 4}[kind]
    pixels = packed_zeros((1 + (width * channels * depth + 7) // 8) * height) if data else b""
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    chunks = [chunk(b"IHDR", header), extra, chunk(b"IDAT", pixels), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def tiff_file(frames: int, entries: dict[int, tuple[int, int, int]], data: bytes, *, loop: bool = False) -> bytes:
    """A TIFF file of equal frames, which share the `data` at offset 8; the last one leads back with `loop`."""
    start, size = 8 + len(data), 2 + 12 * len(entries) + 4
    entry = b"".join(struct.pack("<HHII", tag, *value) for tag, value in sorted(entries.items()))
    body = b"".join(
        struct.pack("<H", len(entries))
        + entry
        + struct.pack("<I", start + size * (frame + 1) if frame + 1 < frames else start if loop else 0)
        for frame in range(frames)
    )
    return b"II*\0" + struct.pack("<I", start) + data + body


def tiff_entries(width: int, height: int, size: int, compression: int = 1) -> dict[int, tuple[int, int, int]]:
    """The entries of a grey image in one strip of this size: tag -> type, count, value."""
    sides = {256: (4, 1, width), 257: (4, 1, height), 258: (3, 1, 8), 259: (3, 1, compression), 262: (3, 1, 1)}
    return {**sides, 273: (4, 1, 8), 277: (3, 1, 1), 278: (4, 1, height), 279: (4, 1, size)}


def tiles(width: int, height: int, data: bytes) -> bytes:
    entries = tiff_entries(10, 10, len(data), 8)
    for tag in (273, 278, 279):
        del entries[tag]
    entries |= {322: (4, 1, width), 323: (4, 1, height), 324: (4, 1, 8), 325: (4, 1, len(data))}
    return tiff_file(1, entries, data)


def gif_file(width: int, height: int, frames: int) -> bytes:
    head = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    frame = b"\x21\xf9\x04\0\0\0\0\0" + b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\0"
    return head + frame * frames + b";"


def animated_png(frames: int) -> bytes:
    return png_file(9, 9, extra=chunk(b"acTL", struct.pack(">II", frames, 0)))


def webp_file(size: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (size, size)).save(buffer, "WEBP", lossless=True, method=0)
    return buffer.getvalue()


def jpeg_header(width: int, height: int) -> bytes:
    data = bytearray(stored(Image.new("L", (8, 8)), "JPEG"))
    place = data.index(b"\xff\xc0") + 5
    data[place : place + 4] = struct.pack(">HH", height, width)
    return bytes(data)


def jpeg2000_header(side: int) -> bytes:
    data = bytearray(stored(Image.new("L", (8, 8)), "JPEG2000", no_jp2=True))
    place = data.index(b"\xff\x51") + 6
    for offset in (0, 16):
        data[place + offset : place + offset + 8] = struct.pack(">II", side, side)
    return bytes(data)


def bmp_header(side: int) -> bytes:
    data = bytearray(stored(Image.new("L", (8, 8)), "BMP"))
    data[18:26] = struct.pack("<ii", side, side)
    return bytes(data)


def stored(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def image(content: Callable[[], bytes], suffix: str = ".png") -> Make:
    """A source of an image with a text beside it."""

    def make(folder: Path) -> None:
        (folder / f"bomb{suffix}").write_bytes(content())
        write(folder / "bomb.txt", "да")

    return make


ZEROS = bytes(64)
IMAGES: dict[str, Make] = {
    "PNG 1 x 39,000,000": image(lambda: png_file(1, 39_000_000)),
    "PNG 39,000,000 x 1": image(lambda: png_file(39_000_000, 1)),
    "PNG 390,000 x 10": image(lambda: png_file(390_000, 10)),
    "PNG 10 x 390,000": image(lambda: png_file(10, 390_000)),
    "PNG of 144 megapixels with transparency": image(lambda: png_file(12_000, 12_000, RGBA, data=False)),
    "PNG of 3,600 megapixels": image(lambda: png_file(60_000, 60_000, data=False)),
    "PNG of 900 megapixels of a bit": image(lambda: png_file(30_000, 30_000, depth=1)),
    "PNG with a text that unpacks to 200 MB": image(
        lambda: png_file(9, 9, extra=chunk(b"zTXt", b"a\0\0" + packed_zeros(200 * MB)))
    ),
    "PNG with a profile that unpacks to 200 MB": image(
        lambda: png_file(9, 9, extra=chunk(b"iCCP", b"a\0\0" + packed_zeros(200 * MB)))
    ),
    "animated PNG of 2,000,000,000 frames": image(lambda: animated_png(2_000_000_000)),
    "GIF of 4,295 megapixels": image(lambda: gif_file(65_535, 65_535, 1), ".gif"),
    "GIF of 50,000 frames": image(lambda: gif_file(9, 9, 50_000), ".gif"),
    "TIFF of 12,000 frames": image(lambda: tiff_file(12_000, tiff_entries(8, 8, 64), ZEROS), ".tif"),
    "TIFF of frames in a circle": image(lambda: tiff_file(3, tiff_entries(8, 8, 64), ZEROS, loop=True), ".tif"),
    "TIFF of one strip of 3,600 megapixels": image(
        lambda: tiff_file(1, tiff_entries(60_000, 60_000, 64, 8), ZEROS), ".tif"
    ),
    "TIFF with a tile of 900 megapixels": image(lambda: tiles(30_000, 30_000, packed_zeros(900 * MB)), ".tif"),
    "WebP of 225 megapixels": image(lambda: webp_file(15_000), ".webp"),
    "JPEG of 4,295 megapixels": image(lambda: jpeg_header(65_535, 65_535), ".jpg"),
    "JPEG 2000 of one tile of 100,000 x 100,000": image(lambda: jpeg2000_header(100_000), ".j2k"),
    "BMP of 900 megapixels": image(lambda: bmp_header(30_000), ".bmp"),
}


def zip_of_zeros(folder: Path) -> None:
    with zipfile.ZipFile(folder / "bomb.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        file.writestr("a.txt", bytes(300 * MB))


def zip_that_overlaps(folder: Path) -> None:
    """2,000 entries with the data of the first one."""
    with zipfile.ZipFile(folder / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.txt", bytes(10 * MB))
        first = file.filelist[0]
        for number in range(2000):
            copy = zipfile.ZipInfo(f"{number}.txt")
            for name in ("compress_type", "file_size", "compress_size", "CRC", "header_offset", "flag_bits"):
                setattr(copy, name, getattr(first, name))
            file.filelist.append(copy)
            file.NameToInfo[copy.filename] = copy


def zip_that_lies(folder: Path) -> None:
    zip_of_zeros(folder)
    data = bytearray((folder / "bomb.zip").read_bytes())
    for start in (22, data.index(b"PK\x01\x02") + 24):
        data[start : start + 4] = struct.pack("<I", 10)
    (folder / "bomb.zip").write_bytes(data)


def zip_of_many(folder: Path) -> None:
    """600,000 entries, all of them the first one."""
    entry = b"PK\x01\x02" + bytes(24) + struct.pack("<H", 6) + bytes(16)
    body = b"".join(entry + b"%06d" % number for number in range(600_000))
    end = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 600_000, 600_000, len(body), 0)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, len(body), 1)
    last = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 65_535, 65_535, 2**32 - 1, 2**32 - 1, 0)
    (folder / "bomb.zip").write_bytes(body + end + locator + last)


def zip_with(make: Make) -> Make:
    """An archive with the files of another source."""

    def pack(folder: Path) -> None:
        (folder / "inner").mkdir()
        make(folder / "inner")
        with zipfile.ZipFile(folder / "bomb.zip", "w", zipfile.ZIP_STORED) as file:
            for path in sorted((folder / "inner").iterdir()):
                file.write(path, path.name)
                path.unlink()
        (folder / "inner").rmdir()

    return pack


def parquet(rows: int, text: str = "", image: bytes = b"", groups: int = 1) -> Make:
    """Groups of rows of the same text and image, which a dictionary holds once a group."""

    def make(folder: Path) -> None:
        places = pa.array(np.zeros(rows, np.int32))
        columns = {"image": [image or png()], "text": [text]}
        table = pa.table({k: pa.DictionaryArray.from_arrays(places, pa.array(v)) for k, v in columns.items()})
        with pq.ParquetWriter(folder / "bomb.parquet", table.schema, compression="zstd", store_schema=False) as file:
            for _ in range(groups):
                file.write_table(table)

    return make


def text(name: str, content: Callable[[], str | bytes]) -> Make:
    """A file of this content, beside an image."""

    def make(folder: Path) -> None:
        made = content()
        (folder / name).write_bytes(made if isinstance(made, bytes) else made.encode())
        picture(folder / ("bomb.png" if name.endswith(".txt") else "p.png"))

    return make


def page(lines: str) -> str:
    return page_xml(f'<TextRegion id="r">{lines}</TextRegion>')


LAUGHS = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10 if n else "ha"}">' for n in range(12))

TEXTS: dict[str, Make] = {
    "XML with a billion laughs": text(
        "bomb.xml", lambda: f"<!DOCTYPE PcGts [{LAUGHS}]><PcGts><Page imageFilename='p.png'>&a11;</Page></PcGts>"
    ),
    "XML with a file as an entity": text(
        "bomb.xml", lambda: '<!DOCTYPE PcGts [<!ENTITY a SYSTEM "file:///etc/passwd">]><PcGts><Page>&a;</Page></PcGts>'
    ),
    "XML of 6,000,000 elements": text("bomb.xml", lambda: page("<a/>" * 6_000_000)),
    "XML of 5,000,000 attributes": text(
        "bomb.xml", lambda: page("<a " + " ".join(f'a{n:x}=""' for n in range(3_000_000)) + "/>")
    ),
    "XML of 1,000,000 levels": text("bomb.xml", lambda: page("<a>" * 1_000_000)),
    "XML with a polygon of 6,000,000 points": text(
        "bomb.xml", lambda: page(page_line("да").replace('points="', 'points="' + "1,1 " * 6_000_000, 1))
    ),
    "XML with 300 polygons of 25,000 points": text(
        "bomb.xml",
        lambda: page(page_line("да").replace('points="', 'points="' + "1,1 " * 24_000, 1) * 300),
    ),
    "JSON of 20,000,000 levels": text("bomb.json", lambda: '{"images": ' + "[" * 20_000_000),
    "JSON of 20,000,000 objects": text("bomb.json", lambda: '{"images": [' + "{}," * 20_000_000 + "{}]}"),
    "JSON of 20,000,000 lists of messages": text("bomb.json", lambda: '[{"messages": [' + "[]," * 20_000_000 + "{}]}]"),
    "JSON with a number of 20,000,000 digits": text("bomb.json", lambda: '{"images": [' + "1" * 20_000_000 + "]}"),
    "JSONL of 20,000,000 rows": text("bomb.jsonl", lambda: '{"image": "p.png", "text": "a"}\n' + "{}\n" * 20_000_000),
    "CSV of 20,000,000 rows": text("bomb.csv", lambda: "image,text\n" + "a,\n" * 20_000_000),
    "TSV of 20,000,000 rows": text("bomb.tsv", lambda: "image\ttext\n" + "a\t\n" * 20_000_000),
    "TSV of 60,000,000 cells in a row": text("bomb.tsv", lambda: "image\ttext\n" + "\t" * 60_000_000),
    "CSV with a cell that never ends": text("bomb.csv", lambda: 'image,text\np.png,"' + "a\n" * 30_000_000),
    "a text of 60 MB with a sign beyond the basic plane": text("bomb.txt", lambda: "\U0001f600" + "a\n" * 30_000_000),
    "a text of 64 GB without content": lambda folder: sparse(folder / "bomb.txt", 64 * 2**30),
    "an XML file of 64 GB without content": lambda folder: sparse(folder / "bomb.xml", 64 * 2**30),
    "a zip archive of zeros": zip_of_zeros,
    "a zip archive of entries that overlap": zip_that_overlaps,
    "a zip archive that states a wrong size": zip_that_lies,
    "a zip archive of 600,000 entries": zip_of_many,
    "a zip archive of an image that is a bomb": zip_with(IMAGES["PNG 390,000 x 10"]),
    "Parquet with 1,000 texts of 50 MB": parquet(1000, "0" * 50 * MB),
    "Parquet with 30 texts of 50 MB, each in a group": parquet(1, "0" * 50 * MB, groups=30),
    "Parquet with 64 images of 50 MB": parquet(64, "да", bytes(50 * MB)),
    "Parquet with 30 images of 50 MB, each in a group": parquet(1, "да", bytes(50 * MB), groups=30),
    "Parquet with 20,000,000 rows": parquet(20_000_000, ""),
    "PDF with a page of 100,000 x 100,000 points": lambda folder: pdf(folder, "/MediaBox [0 0 100000 100000]"),
    "PDF with an image of 3,600 megapixels": lambda folder: pdf(folder, zeros=3600 * 10**6),
    "PDF of 6,000,000 letters": lambda folder: letters_pdf(folder, [6_000_000]),
    "PDF of a page 60 times in a page, four levels deep": lambda folder: nested_pdf(folder, 60, 4),
}


def sparse(path: Path, size: int) -> None:
    picture(path.with_suffix(".png"))
    with path.open("wb") as file:
        file.write(b"<PcGts>")
        file.truncate(size)


def letters_pdf(folder: Path, letters: Sequence[int]) -> None:
    """A PDF of pages that draw so many letters, with their numbers as texts; PDFium has an object for each letter."""
    folder.mkdir(exist_ok=True)
    with pikepdf.new() as document:
        for count in letters:
            page = document.add_blank_page(page_size=(60, 60))
            page.Resources = pikepdf.Object.parse(
                b"<< /Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
            )
            page.Contents = document.make_stream(b"BT /F 12 Tf 10 10 Td " + b"(a) Tj " * count + b"ET")
        document.save(folder / "bomb.pdf")
    write(folder / "bomb.txt", "\f".join(str(number) for number in range(1, len(letters) + 1)))


def nested_pdf(folder: Path, times: int, levels: int) -> None:
    """A page that draws a form so many times, which draws another one as often, and so on."""
    with pikepdf.new() as document:
        page = document.add_blank_page(page_size=(60, 60))
        content, resources = b"0 0 9 9 re f ", pikepdf.Dictionary()
        for _ in range(levels):
            head = {"/Type": pikepdf.Name.XObject, "/Subtype": pikepdf.Name.Form, "/Resources": resources}
            form = document.make_stream(content, {**head, "/BBox": [0, 0, 60, 60]})
            content, resources = b"/X Do " * times, pikepdf.Dictionary(XObject=pikepdf.Dictionary(X=form))
        page.Contents, page.Resources = document.make_stream(content), resources
        document.save(folder / "bomb.pdf")
    write(folder / "bomb.txt", "да")


def pdf(folder: Path, page: str = "", zeros: int = 0) -> None:
    side = int(zeros**0.5) or 8
    head = f"/Type /XObject /Subtype /Image /Width {side} /Height {side} /BitsPerComponent 8 /ColorSpace /DeviceGray"
    write_pdf(
        folder / "bomb.pdf", [(f"{head} /Filter /FlateDecode", packed_zeros(300 * MB if zeros else 64))], page=page
    )
    write(folder / "bomb.txt", "да")
