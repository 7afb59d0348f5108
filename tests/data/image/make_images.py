#!/usr/bin/env python3
"""Writes the picture files of this folder and what they decode to (expected.txt), Pillow's bicubic
(resize.txt) and the size table of docs/spec/vision.md (plans.txt). Needs Pillow and NumPy; the
files are committed, so nothing runs this but a person who changes them.

expected.txt: file rule width height fnv    rule: hosted | white | drop | turned (EXIF applied)
resize.txt:   width height seed new_width new_height fnv
plans.txt:    width height target_width target_height vit_rows vit_columns llm_rows llm_columns
fnv: FNV-1a 64 of the RGB rows. PNG kinds that Pillow cannot write are put together here.
"""

import pathlib
import re
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps

HERE = pathlib.Path(__file__).resolve().parent
SPEC = HERE.parents[2] / "docs/spec/vision.md"
EXPECTED = []


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in bytes(data):
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def pattern(width, height, seed=0):
    """The specification's test picture."""
    y, x = np.mgrid[:height, :width]
    channels = [7 * x + 3 * y, 5 * x + 11 * y, x + 2 * y]
    return np.stack([(c + seed) % 256 for c in channels], axis=2).astype(np.uint8)


def smooth(width, height):
    """Something that lossy codecs like."""
    y, x = np.mgrid[:height, :width]
    channels = [255 * x // width, 255 * y // height, 128 + 100 * np.sin(x / 3) * np.cos(y / 4)]
    return np.stack(channels, axis=2).astype(np.uint8)


def expect(name, rule, pixels):
    EXPECTED.append(f"{name} {rule} {pixels.shape[1]} {pixels.shape[0]} {fnv(pixels.tobytes())}")


def expect_rules(name, rgb, alpha):
    """All three rules for RGB with alpha, in integers as the specification writes them."""
    rgb, alpha = rgb.astype(np.int64), alpha.astype(np.int64)[:, :, None]
    for rule, ground in (("hosted", 253), ("white", 255)):
        expect(name, rule, ((rgb * alpha + ground * (255 - alpha) + 127) // 255).astype(np.uint8))
    expect(name, "drop", rgb.astype(np.uint8))


def expect_pillow(name):
    """An opaque file decodes as in Pillow."""
    with Image.open(HERE / name) as image:
        expect(name, "hosted", np.asarray(image.convert("RGB")))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_png(name, samples, colour_type, depth, passes=None, extra=()):
    """samples: [height, width, channels] of 8 or 16 bits, no filters."""
    height, width = samples.shape[:2]
    dtype = ">u2" if depth == 16 else "u1"
    if passes is None:
        passes = [samples]
    raw = b"".join(b"\0" + row.astype(dtype).tobytes() for part in passes for row in part)
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, int(len(passes) > 1))
    body = chunk(b"IHDR", header) + b"".join(extra) + chunk(b"IDAT", zlib.compress(raw))
    (HERE / name).write_bytes(b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b""))


def pngs():
    rgb = pattern(23, 17, 5)
    alpha = pattern(23, 17, 90)[:, :, 0]
    Image.fromarray(rgb).save(HERE / "rgb.png")
    expect_pillow("rgb.png")
    Image.fromarray(rgb[:, :, 1]).save(HERE / "grey.png")
    expect_pillow("grey.png")
    Image.fromarray(rgb).convert("1").save(HERE / "bits.png")
    expect_pillow("bits.png")
    Image.fromarray(rgb).quantize(16).save(HERE / "palette.png")
    expect_pillow("palette.png")
    Image.fromarray(np.dstack([rgb, alpha])).save(HERE / "rgba.png")
    expect_rules("rgba.png", rgb, alpha)
    grey = rgb[:, :, :1].repeat(3, 2)
    Image.fromarray(np.dstack([rgb[:, :, 0], alpha])).save(HERE / "grey_alpha.png")
    expect_rules("grey_alpha.png", grey, alpha)

    palette = Image.fromarray(rgb).quantize(8)
    palette.save(HERE / "palette_alpha.png", transparency=bytes([0, 77, 200]))
    index = np.asarray(palette)
    shares = np.array([0, 77, 200] + [255] * 253, np.uint8)
    expect_rules("palette_alpha.png", np.asarray(palette.convert("RGB")), shares[index])

    adam7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
             (0, 1, 1, 2)]
    parts = [rgb[y::dy, x::dx] for x, y, dx, dy in adam7]
    write_png("interlaced.png", rgb, 2, 8, parts)
    expect_pillow("interlaced.png")

    # 16 bits: value / 257 rounded, never Pillow's clipped grey.
    wide = (pattern(23, 17, 3).astype(np.int64) * 257 + pattern(23, 17, 44)) % 65536
    narrow = ((wide * 2 + 257) // 514).astype(np.uint8)
    write_png("rgb16.png", wide, 2, 16)
    expect("rgb16.png", "hosted", narrow)
    write_png("interlaced16.png", wide, 2, 16, [wide[y::dy, x::dx] for x, y, dx, dy in adam7])
    expect("interlaced16.png", "hosted", narrow)
    write_png("grey16.png", wide[:, :, :1], 0, 16)
    expect("grey16.png", "hosted", narrow[:, :, :1].repeat(3, 2))
    write_png("rgba16.png", np.dstack([wide, wide[:, ::-1, 0]]), 6, 16)
    expect_rules("rgba16.png", narrow, narrow[:, ::-1, 0])

    key = rgb[4, 6].astype(">u2").tobytes()
    write_png("colour_key.png", rgb, 2, 8, extra=[chunk(b"tRNS", key)])
    expect_rules("colour_key.png", rgb, np.where((rgb == rgb[4, 6]).all(2), 0, 255))
    write_png("garbage_chunks.png", rgb, 2, 8, extra=[
        chunk(b"iCCP", b"x\0\0not deflate"), chunk(b"eXIf", b"MM\0*\xff\xff\xff\xff\0\0"),
        chunk(b"gAMA", b"\0\0\0\1"), chunk(b"tEXt", b"no separator")])
    expect("garbage_chunks.png", "hosted", rgb)
    expect("garbage_chunks.png", "turned", rgb)

    frames = [Image.fromarray(pattern(16, 12, seed)) for seed in range(4)]
    frames[0].save(HERE / "animated.png", save_all=True, append_images=frames[1:])
    expect("animated.png", "hosted", pattern(16, 12))

    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        name = f"turned{orientation}.png"
        Image.fromarray(rgb[:5, :4]).save(HERE / name, exif=exif)
        expect(name, "hosted", rgb[:5, :4])
        with Image.open(HERE / name) as image:
            expect(name, "turned", np.asarray(ImageOps.exif_transpose(image)))


def jpegs():
    picture = Image.fromarray(smooth(45, 35))
    for name, options in (
            ("quarter.jpg", {"subsampling": 2}), ("full.jpg", {"subsampling": 0}),
            ("half.jpg", {"subsampling": 1}), ("progressive.jpg", {"progressive": True}),
            ("coarse.jpg", {"quality": 30}),
            ("icc.jpg", {"icc_profile": b"garbage" * 9})):
        picture.save(HERE / name, **options)
        expect_pillow(name)
    picture.convert("L").save(HERE / "grey.jpg")
    expect_pillow("grey.jpg")
    picture.convert("CMYK").save(HERE / "cmyk.jpg")
    expect_pillow("cmyk.jpg")
    exif = Image.Exif()
    exif[0x0112] = 6
    picture.save(HERE / "turned.jpg", exif=exif)
    expect_pillow("turned.jpg")
    with Image.open(HERE / "turned.jpg") as image:
        expect("turned.jpg", "turned", np.asarray(ImageOps.exif_transpose(image)))


def webps():
    rgb, alpha = smooth(31, 21), pattern(31, 21, 8)[:, :, 1]
    Image.fromarray(rgb).save(HERE / "lossy.webp")
    expect_pillow("lossy.webp")
    Image.fromarray(rgb).save(HERE / "lossless.webp", lossless=True)
    expect("lossless.webp", "hosted", rgb)
    exif = Image.Exif()
    exif[0x0112] = 8
    Image.fromarray(np.dstack([rgb, alpha])).save(HERE / "alpha.webp", lossless=True, exact=True,
                                                  exif=exif)
    expect_rules("alpha.webp", rgb, alpha)
    frames = [Image.fromarray(pattern(16, 12, seed)) for seed in range(0, 60, 20)]
    frames[0].save(HERE / "animated.webp", save_all=True, append_images=frames[1:], lossless=True)
    expect("animated.webp", "hosted", pattern(16, 12))


def gifs():
    picture = Image.fromarray(smooth(29, 19)).quantize(60)
    picture.save(HERE / "plain.gif")
    expect("plain.gif", "hosted", np.asarray(picture.convert("RGB")))
    picture.save(HERE / "interlaced.gif", interlace=True)
    expect("interlaced.gif", "hosted", np.asarray(picture.convert("RGB")))
    picture.save(HERE / "transparent.gif", transparency=3)
    with Image.open(HERE / "transparent.gif") as image:
        rgba = np.asarray(image.convert("RGBA"))
        rgb = np.asarray(image.convert("RGB"))
    expect_rules("transparent.gif", rgb, rgba[:, :, 3])
    frames = [Image.fromarray(smooth(16, 12)[:, ::step]).resize((16, 12)).quantize(20)
              for step in (1, -1)]
    frames[0].save(HERE / "animated.gif", save_all=True, append_images=frames[1:])
    expect("animated.gif", "hosted", np.asarray(frames[0].convert("RGB")))


def write_bmp(name, width, height, bits, data, *, compression=0, palette=(), masks=(), header=40):
    """height < 0: rows from the top down. palette: RGB triples. masks: red, green, blue, alpha."""
    colours = b"".join(bytes((b, g, r)) + b"\0" * (header != 12) for r, g, b in palette)
    if header == 12:
        body = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        body = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, compression, len(data), 0,
                           0, len(palette), 0)
        body += b"".join(struct.pack("<I", mask) for mask in masks)
        body += b"\0" * (header - len(body))
    start = 14 + len(body) + len(colours)
    head = b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start)
    (HERE / name).write_bytes(head + body + colours + data)


def bmp_rows(samples):
    """Rows of bytes from the bottom up, each filled up to four bytes."""
    rows = [row.tobytes() for row in samples.reshape(samples.shape[0], -1)]
    return b"".join(row + b"\0" * (-len(row) % 4) for row in reversed(rows))


def bmps():
    rgb = pattern(23, 17, 5)
    picture = Image.fromarray(rgb)
    for name, image in (("rgb.bmp", picture), ("grey.bmp", picture.convert("L")),
                        ("bits.bmp", picture.convert("1")), ("palette.bmp", picture.quantize(40))):
        image.save(HERE / name)
        expect_pillow(name)
    write_bmp("top_down.bmp", 23, -17, 24, bmp_rows(rgb[::-1, :, ::-1]))
    expect("top_down.bmp", "hosted", rgb)
    write_bmp("os2.bmp", 23, 17, 24, bmp_rows(rgb[:, :, ::-1]), header=12)
    expect_pillow("os2.bmp")
    index = np.asarray(picture.quantize(16)).astype(np.uint8)
    colours = [tuple(3 * i + c for c in (5, 90, 170)) for i in range(14)]
    pairs = np.pad(index, ((0, 0), (0, 1)))
    write_bmp("nibbles.bmp", 23, 17, 4, bmp_rows(pairs[:, ::2] << 4 | pairs[:, 1::2]),
              palette=colours)
    shown = np.array(colours + [(0, 0, 0)] * 2, np.uint8)  # two indices have no colour
    expect("nibbles.bmp", "hosted", shown[index])

    words = (rgb[:, :, 0].astype(np.uint16) << 8) + rgb[:, :, 1]
    write_bmp("rgb555.bmp", 23, 17, 16, bmp_rows(words))
    expect_pillow("rgb555.bmp")
    write_bmp("rgb565.bmp", 23, 17, 16, bmp_rows(words), compression=3,
              masks=(0xF800, 0x07E0, 0x001F), header=108)
    expect_pillow("rgb565.bmp")
    alpha = pattern(23, 17, 90)[:, :, 0]
    bgra = np.dstack([rgb[:, :, ::-1], alpha])
    write_bmp("filler.bmp", 23, 17, 32, bmp_rows(bgra))
    expect("filler.bmp", "hosted", rgb)
    write_bmp("alpha.bmp", 23, 17, 32, bmp_rows(bgra), compression=3,
              masks=(0xFF0000, 0xFF00, 0xFF, 0xFF000000), header=108)
    expect_rules("alpha.bmp", rgb, alpha)

    # Runs: a repeat, pixels as they are (an odd number), a step, ends of rows. Untouched: index 0.
    runs = bytes([5, 3, 0, 3, 1, 2, 3, 0, 0, 0, 0, 2, 2, 1, 4, 1, 0, 0, 9, 2, 0, 1])
    write_bmp("runs8.bmp", 8, 5, 8, runs, compression=1, palette=colours[:4])
    rows = [[3, 3, 3, 3, 3, 1, 2, 3], [0] * 8, [0, 0, 1, 1, 1, 1, 0, 0], [2] * 8, [0] * 8]
    expect("runs8.bmp", "hosted", np.array(colours, np.uint8)[np.array(rows[::-1])])
    runs = bytes([5, 0x12, 0, 3, 0x31, 0x20, 0, 0, 8, 0x3A, 0, 1])
    write_bmp("runs4.bmp", 8, 3, 4, runs, compression=2, palette=colours)
    rows = [[1, 2, 1, 2, 1, 3, 1, 2], [3, 10] * 4, [0] * 8]
    expect("runs4.bmp", "hosted", np.array(colours, np.uint8)[np.array(rows[::-1])])


def resizes():
    cases = [(1, 1, 0, 14, 14), (1, 1, 9, 3, 1), (2, 3, 1, 7, 5), (64, 48, 0, 63, 48),
             (64, 48, 0, 64, 31), (64, 48, 2, 200, 150), (300, 200, 3, 30, 20),
             (301, 199, 4, 29, 21), (1, 500, 5, 1, 70), (500, 1, 6, 70, 1), (1, 500, 7, 3, 1000),
             (97, 61, 8, 1, 1), (97, 61, 8, 2, 3), (512, 3, 9, 13, 40), (33, 33, 10, 34, 32),
             (1000, 40, 11, 333, 13), (40, 1000, 12, 13, 333), (120, 80, 13, 119, 79)]
    for width, height, seed, new_width, new_height in cases:
        image = Image.fromarray(pattern(width, height, seed))
        data = image.resize((new_width, new_height), Image.Resampling.BICUBIC).tobytes()
        yield f"{width} {height} {seed} {new_width} {new_height} {fnv(data)}"


def plans():
    """The rows of the table of section 4."""
    for line in SPEC.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 5 or not re.match(r"^\d+×\d+", cells[0]):
            continue
        numbers = [int(n) for cell in cells[1:4] for n in re.findall(r"(\d+)(?![\d)]*\))", cell)]
        target_width, target_height, vit_rows, vit_columns, rows, columns = numbers
        for size in cells[0].split(","):
            width, height = map(int, size.strip().split("×"))
            yield (f"{width} {height} {target_width} {target_height} {vit_rows} {vit_columns} "
                   f"{rows} {columns}")


def main():
    pngs()
    jpegs()
    webps()
    gifs()
    bmps()
    (HERE / "expected.txt").write_text("\n".join(EXPECTED) + "\n")
    (HERE / "resize.txt").write_text("\n".join(resizes()) + "\n")
    (HERE / "plans.txt").write_text("\n".join(plans()) + "\n")


if __name__ == "__main__":
    main()
