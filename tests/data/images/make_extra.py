"""Makes extra/ and extra.safetensors: pictures in forms that the reference set lacks, with their expected pixels.

    python make_extra.py            (needs Pillow 13 and NumPy; writes beside itself)

Expected pixels are Pillow's, turned to RGB by to_rgb(); where this project has a rule of its own (16-bit grey, colour
keys of 16 bits, samples Pillow cannot read) they are computed here with NumPy from the pixels that were written.
"""
import io, json, math, struct, zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

HERE = Path(__file__).parent
OUT = HERE / "extra"
OUT.mkdir(exist_ok=True)
tensors = {}
rng = np.random.default_rng(5)
H, W = 11, 13


def smooth(h=H, w=W, c=3):
    y, x = np.mgrid[0:h, 0:w]
    planes = [127 + 80 * np.sin(x / (2 + i)) + 45 * np.cos(y / (1.5 + i) + i) for i in range(c)]
    return np.clip(np.stack(planes, -1) + rng.integers(-15, 16, (h, w, c)), 0, 255).astype(np.uint8)


RGB = smooth()
ALPHA = (np.arange(H * W).reshape(H, W) * 255 // (H * W - 1)).astype(np.uint8)


def to_rgb(image):
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16") or image.mode == "I":
        return grey16(np.asarray(image))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        return np.asarray(Image.alpha_composite(white, rgba).convert("RGB"))
    return np.asarray(image.convert("RGB"))


def grey16(values):
    g = np.floor(np.asarray(values).astype(np.float64) / 257 + 0.5).astype(np.uint8)
    return np.repeat(g[..., None], 3, -1)


def over_white(rgb, alpha):
    rgba = Image.fromarray(np.dstack([rgb, alpha]).astype(np.uint8), "RGBA")
    return np.asarray(Image.alpha_composite(Image.new("RGBA", rgba.size, (255,) * 4), rgba).convert("RGB"))


def put(name, data, want=None):
    (OUT / name).write_bytes(data)
    if want is None:
        want = to_rgb(Image.open(OUT / name))
    tensors["decode." + name] = np.ascontiguousarray(want)


def saved(image, fmt, **kw):
    f = io.BytesIO()
    image.save(f, fmt, **kw)
    return f.getvalue()


# --- PNG, written by hand ---------------------------------------------------------------------------------------------
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pack_row(row, depth):
    row = np.asarray(row).reshape(-1)
    if depth == 16:
        return row.astype(">u2").tobytes()
    if depth == 8:
        return row.astype(np.uint8).tobytes()
    bits = np.concatenate([[(int(v) >> (depth - 1 - i)) & 1 for i in range(depth)] for v in row]) if len(row) else []
    return np.packbits(np.array(bits, np.uint8)).tobytes()


def png(samples, depth, colour, extra=(), adam7=False, filter_sub=False):
    h, w = samples.shape[:2]
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)] if adam7 else [(0, 0, 1, 1)]
    raw = b""
    for x0, y0, dx, dy in passes:
        part = samples[y0::dy, x0::dx]
        if part.shape[0] == 0 or part.shape[1] == 0:
            continue
        for row in part:
            data = pack_row(row, depth)
            if filter_sub:
                n = max(1, depth * (samples.shape[2] if samples.ndim == 3 else 1) // 8)
                data = bytes((data[i] - (data[i - n] if i >= n else 0)) & 255 for i in range(len(data)))
            raw += (b"\1" if filter_sub else b"\0") + data
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, int(adam7)))
            + b"".join(chunk(k, d) for k, d in extra) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b""))


rgb16 = RGB.astype(np.uint16) * 256 + rng.integers(0, 256, RGB.shape)
a16 = ALPHA.astype(np.uint16) * 257
put("rgb16.png", png(rgb16, 16, 2))
put("rgba16.png", png(np.dstack([rgb16, a16]), 16, 6))
put("grey_alpha16.png", png(np.dstack([rgb16[..., 0], a16]), 16, 4))
put("grey16_all.png", png(np.arange(65536).reshape(256, 256), 16, 0, filter_sub=True))
for depth in (2, 4):
    top = (1 << depth) - 1
    values = RGB[..., 0] >> (8 - depth)
    put(f"grey{depth}.png", png(values, depth, 0))
    put(f"grey{depth}_key.png", png(values, depth, 0, [(b"tRNS", struct.pack(">H", int(values[0, 0])))]),
        over_white(np.repeat((values * (255 // top))[..., None], 3, -1), np.where(values == values[0, 0], 0, 255)))
    put(f"palette{depth}.png", png(values, depth, 3, [(b"PLTE", rng.integers(0, 256, 3 * (top + 1)).astype(np.uint8).tobytes())]))
key = rgb16[3, 4]
put("rgb16_key.png", png(rgb16, 16, 2, [(b"tRNS", struct.pack(">HHH", *map(int, key)))]),
    over_white(rgb16 >> 8, np.where((rgb16 == key).all(-1), 0, 255)))
put("rgb_key.png", png(RGB, 8, 2, [(b"tRNS", struct.pack(">HHH", *map(int, RGB[2, 2])))]))
put("grey16_key.png", png(rgb16[..., 0], 16, 0, [(b"tRNS", struct.pack(">H", int(rgb16[1, 1, 0])))]),
    over_white(grey16(rgb16[..., 0]), np.where(rgb16[..., 0] == rgb16[1, 1, 0], 0, 255)))
put("adam7_rgb.png", png(RGB, 8, 2, adam7=True))
put("adam7_rgba.png", png(np.dstack([RGB, ALPHA]), 8, 6, adam7=True))
put("adam7_grey1.png", png(RGB[..., 0] >> 7, 1, 0, adam7=True))
put("adam7_small.png", png(RGB[:2, :3], 8, 2, adam7=True))
# the three pictures of the transparency case
put("case_rgba.png", png(np.array([[[255, 0, 0, 0], [255, 0, 0, 128]]]), 8, 6))
put("case_palette.png", png(np.array([[0, 1]]), 8, 3, [(b"PLTE", bytes([255, 0, 0, 0, 0, 255])), (b"tRNS", b"\0")]))
put("case_grey_alpha.png", png(np.array([[[10, 0]]]), 8, 4))
for o in (3, 6):
    exif = Image.Exif()
    exif[0x0112] = o
    put(f"exif{o}.png", saved(Image.fromarray(RGB), "PNG", exif=exif))
put("gamma.png", png(RGB, 8, 2, [(b"gAMA", struct.pack(">I", 100000)), (b"tEXt", b"Comment\0hello")]))

# --- JPEG -------------------------------------------------------------------------------------------------------------
big = smooth(16, 16)


def cmyk_jpeg(planes, transform=None, keep_app14=True):
    data = saved(Image.fromarray(planes, "CMYK"), "JPEG", quality=95, subsampling=0)
    at = data.index(b"\xff\xee")
    n = struct.unpack(">H", data[at + 2:at + 4])[0]
    app14 = bytearray(data[at:at + 2 + n])
    if transform is not None:
        app14[-1] = transform
    return data[:at] + (bytes(app14) if keep_app14 else b"") + data[at + 2 + n:]


red = np.broadcast_to(np.array([0, 255, 255, 0], np.uint8), (16, 16, 4)).copy()
put("cmyk_solid.jpg", cmyk_jpeg(red))
put("cmyk_no_app14.jpg", cmyk_jpeg(red, keep_app14=False))
put("cmyk_2x2.jpg", cmyk_jpeg(np.array([[[0, 255, 255, 0], [255, 0, 255, 0]], [[255, 255, 0, 0], [0, 0, 0, 255]]], np.uint8)))
ycc = np.asarray(Image.fromarray(big).convert("YCbCr"))
put("ycck.jpg", cmyk_jpeg(np.dstack([255 - ycc, ycc[..., 0] // 3]), transform=2))
put("rgb_no_transform.jpg", saved(Image.fromarray(big), "JPEG", quality=95, keep_rgb=True))
put("restart.jpg", saved(Image.fromarray(smooth(40, 50)), "JPEG", quality=85, restart_marker_blocks=2))
put("progressive_420.jpg", saved(Image.fromarray(smooth(33, 35)), "JPEG", quality=70, progressive=True, subsampling=2))
plain = saved(Image.fromarray(big), "JPEG", quality=90)


def with_app1(payload):
    return plain[:2] + b"\xff\xe1" + struct.pack(">H", len(payload) + 2) + payload + plain[2:]


def exif_bytes(order, orientation, kind=3):
    value = struct.pack(order + "HH", orientation, 0) if kind == 3 else struct.pack(order + "I", orientation)
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IHHHI", 8, 1, 0x0112, kind, 1) + value + b"\0" * 4


put("exif_big_endian.jpg", with_app1(b"Exif\0\0" + exif_bytes(">", 6)))
put("exif_little_endian.jpg", with_app1(b"Exif\0\0" + exif_bytes("<", 8)))
put("exif_out_of_range.jpg", with_app1(b"Exif\0\0" + exif_bytes("<", 9)))
put("exif_cut.jpg", with_app1((b"Exif\0\0" + exif_bytes("<", 6))[:20]))
XMP = b'<x:xmpmeta><rdf:Description tiff:Orientation="%d"/></x:xmpmeta>'
put("xmp.jpg", with_app1(b"http://ns.adobe.com/xap/1.0/\0" + XMP % 6))
put("arithmetic.jpg", (OUT / "arithmetic.jpg").read_bytes())  # made of restart.jpg with `jpegtran -arithmetic -restart 0`
put("trailing.jpg", plain + b"and some more bytes")

# --- WebP -------------------------------------------------------------------------------------------------------------
exif = Image.Exif()
exif[0x0112] = 5
put("exif5.webp", saved(Image.fromarray(smooth(20, 24)), "WEBP", lossless=True, exif=exif))
put("lossy_alpha.webp", saved(Image.fromarray(np.dstack([smooth(24, 20), (np.arange(480).reshape(24, 20) // 2).astype(np.uint8)]), "RGBA"), "WEBP", quality=80))
put("lossy_odd.webp", saved(Image.fromarray(smooth(23, 31)), "WEBP", quality=60))


def frames_of(name):
    with Image.open(OUT / name) as image:
        for i in range(image.n_frames):
            image.seek(i)
            rgba = image.convert("RGBA")
            white = Image.new("RGBA", rgba.size, (255,) * 4)
            tensors[f"frame.{name}.{i}.{round(image.info.get('duration', 0))}"] = np.asarray(Image.alpha_composite(white, rgba).convert("RGB"))


def moving(n, size=(24, 18)):
    pictures = []
    for i in range(n):
        picture = Image.new("RGBA", size, (0, 0, 0, 0))
        picture.paste((40 * i % 256, 200 - 30 * i, 90, 255), (2 + 3 * i, 3 + i, 9 + 3 * i, 11 + i))
        pictures.append(picture)
    return pictures


pictures = moving(4)
put("moving.webp", saved(pictures[0], "WEBP", save_all=True, append_images=pictures[1:], duration=[40, 70, 100, 30], lossless=True))
frames_of("moving.webp")

# --- GIF --------------------------------------------------------------------------------------------------------------
for disposal in (1, 2, 3):
    name = f"disposal{disposal}.gif"
    put(name, saved(pictures[0], "GIF", save_all=True, append_images=pictures[1:], duration=[40, 70, 100, 30], disposal=disposal, optimize=False))
    frames_of(name)


def lzw(indices, bits):
    """Codes of one size only: the table is cleared before it grows."""
    clear, end = 1 << bits, (1 << bits) + 1
    out, acc, n = bytearray(), 0, 0
    def emit(code):
        nonlocal acc, n
        acc |= code << n
        n += bits + 1
        while n >= 8:
            out.append(acc & 255)
            acc >>= 8
            n -= 8
    emit(clear)
    for k, i in enumerate(indices):
        if k and k % ((1 << bits) - 2) == 0:
            emit(clear)
        emit(int(i))
    emit(end)
    if n:
        out.append(acc & 255)
    return bytes(out)


def gif(screen, frames, palette, transparent=None):
    bits = 4
    data = b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80 | (bits - 1), 0, 0) + palette
    for (left, top), indices, interlaced in frames:
        h, w = indices.shape
        order = np.concatenate([np.arange(a, h, b) for a, b in ((0, 8), (4, 8), (2, 4), (1, 2))]) if interlaced else np.arange(h)
        if transparent is not None:
            data += b"\x21\xf9\x04" + struct.pack("<BHB", 1, 5, transparent) + b"\0"
        data += b"," + struct.pack("<HHHHB", left, top, w, h, 0x40 if interlaced else 0) + bytes([bits])
        code = lzw(indices[order].reshape(-1), bits)
        data += b"".join(bytes([len(code[i:i + 255])]) + code[i:i + 255] for i in range(0, len(code), 255)) + b"\0"
    return data + b";"


colours = rng.integers(0, 256, 48).astype(np.uint8)
indices = rng.integers(0, 16, (21, 10))
put("interlaced.gif", gif((10, 21), [((0, 0), indices, True)], colours.tobytes()))
inside = np.full((9, 12, 3), 255, np.uint8)
inside[2:7, 3:9] = np.where((indices[:5, :6] == 7)[..., None], 255, colours.reshape(16, 3)[indices[:5, :6]])
put("offset.gif", gif((12, 9), [((3, 2), indices[:5, :6], False)], colours.tobytes(), transparent=7), inside)
put("larger_than_screen.gif", gif((4, 3), [((0, 0), indices[:6, :8], False)], colours.tobytes()))

# --- TIFF -------------------------------------------------------------------------------------------------------------
for name, kw in (("raw", {}), ("lzw", {"compression": "tiff_lzw"}), ("deflate", {"compression": "tiff_adobe_deflate"}),
                 ("packbits", {"compression": "packbits"})):
    put(f"rgb_{name}.tiff", saved(Image.fromarray(RGB), "TIFF", **kw))
put("rgba.tiff", saved(Image.fromarray(np.dstack([RGB, ALPHA]), "RGBA"), "TIFF"))
put("cmyk.tiff", saved(Image.fromarray(np.dstack([RGB, ALPHA // 2]), "CMYK"), "TIFF"))
put("grey.tiff", saved(Image.fromarray(RGB[..., 0]), "TIFF"))
put("one_bit.tiff", saved(Image.fromarray(RGB[..., 0]).convert("1"), "TIFF", compression="group4"))
put("palette.tiff", saved(Image.fromarray(RGB).quantize(20), "TIFF"))
put("jpeg.tiff", saved(Image.fromarray(smooth(24, 32)).convert("YCbCr"), "TIFF", compression="jpeg"))
put("jpeg_rgb.tiff", saved(Image.fromarray(smooth(24, 32)), "TIFF", compression="jpeg"))


def tiff(order, width, height, tags, blocks, tiled=False, compression=1):
    """TIFF with the given (tag, type, values) and data blocks."""
    offset_tag, count_tag = (324, 325) if tiled else (273, 279)
    tags = sorted(tags + [(256, 4, [width]), (257, 4, [height]), (259, 3, [compression]), (offset_tag, 4, [0] * len(blocks)), (count_tag, 4, [len(b) for b in blocks])])
    size = {1: 1, 3: 2, 4: 4, 5: 8}
    head = 8 + 2 + 12 * len(tags) + 4
    extra = b""
    positions = {}
    for tag, kind, values in tags:
        if size[kind] * len(values) > 4:
            positions[tag] = head + len(extra)
            extra += b"\0" * ((size[kind] * len(values) + 1) // 2 * 2)
    starts, at = [], head + len(extra)
    for b in blocks:
        starts.append(at)
        at += len(b)
    code = {1: "B", 3: "H", 4: "I", 5: "II"}
    directory, extra = struct.pack(order + "H", len(tags)), bytearray(extra)
    for tag, kind, values in tags:
        values = starts if tag == offset_tag else values
        data = b"".join(struct.pack(order + code[kind], *(v if kind == 5 else (v,))) for v in values)
        directory += struct.pack(order + "HHI", tag, kind, len(values))
        if len(data) <= 4:
            directory += data.ljust(4, b"\0")
        else:
            directory += struct.pack(order + "I", positions[tag])
            extra[positions[tag] - head:positions[tag] - head + len(data)] = data
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8) + directory + b"\0" * 4 + bytes(extra) + b"".join(blocks)


def tags(bits, samples, photometric, *more):
    return [(258, 3, [bits] * samples), (262, 3, [photometric]), (277, 3, [samples])] + list(more)


g16 = rgb16[..., 0]
for order in "<>":
    put(f"grey16_{'little' if order == '<' else 'big'}.tiff", tiff(order, W, H, tags(16, 1, 1, (278, 4, [4])),
        [g16[i:i + 4].astype(order + "u2").tobytes() for i in range(0, H, 4)]), grey16(g16))
    put(f"rgb16_{'little' if order == '<' else 'big'}.tiff", tiff(order, W, H, tags(16, 3, 2, (278, 4, [H])), [rgb16.astype(order + "u2").tobytes()]), (rgb16 >> 8).astype(np.uint8))
put("white_is_zero4.tiff", tiff("<", W, H, tags(4, 1, 0, (278, 4, [H])), [b"".join(pack_row(r >> 4, 4) for r in RGB[..., 0])]),
    np.repeat((255 - (RGB[..., 0] >> 4) * 17)[..., None], 3, -1).astype(np.uint8))
put("planes.tiff", tiff("<", W, H, tags(8, 3, 2, (278, 4, [5]), (284, 3, [2])), [RGB[i:i + 5, :, c].tobytes() for c in range(3) for i in range(0, H, 5)]), RGB)
padded = np.zeros((32, 16, 3), np.uint8)
padded[:H, :W] = RGB
padded2 = np.zeros((32, 32, 3), np.uint8)
TALL = smooth(20, 30)
padded2[:20, :30] = TALL
put("tiles.tiff", tiff("<", 30, 20, tags(8, 3, 2, (322, 4, [16]), (323, 4, [16])),
    [padded2[y:y + 16, x:x + 16].tobytes() for y in (0, 16) for x in (0, 16)], tiled=True), TALL)
put("premultiplied.tiff", tiff("<", 2, 1, tags(8, 4, 2, (278, 4, [1]), (338, 3, [1])), [bytes([100, 50, 0, 128, 7, 8, 9, 255])]),
    np.array([[[227, 177, 127], [7, 8, 9]]], np.uint8))
put("orientation6.tiff", tiff("<", W, H, tags(8, 3, 2, (278, 4, [H]), (274, 3, [6])), [RGB.tobytes()]), np.rot90(RGB, -1))
put("extra_ignored.tiff", tiff("<", W, H, tags(8, 4, 2, (278, 4, [H]), (338, 3, [0])), [np.dstack([RGB, ALPHA]).tobytes()]), RGB)
yy, cb, cr = (rng.integers(16, 236, s).astype(np.uint8) for s in ((4, 8), (2, 4), (2, 4)))
units = b"".join(bytes([yy[2 * j, 2 * i], yy[2 * j, 2 * i + 1], yy[2 * j + 1, 2 * i], yy[2 * j + 1, 2 * i + 1], cb[j, i], cr[j, i]]) for j in range(2) for i in range(4))
put("ycbcr_subsampled.tiff", tiff("<", 8, 4, tags(8, 3, 6, (278, 4, [4]), (530, 3, [2, 2])), [zlib.compress(units)], compression=8))

# --- BMP --------------------------------------------------------------------------------------------------------------
put("grey.bmp", saved(Image.fromarray(RGB[..., 0]), "BMP"))
put("one_bit.bmp", saved(Image.fromarray(RGB[..., 0]).convert("1"), "BMP"))
put("palette.bmp", saved(Image.fromarray(RGB).quantize(50), "BMP"))
put("rgb32.bmp", saved(Image.fromarray(np.dstack([RGB, ALPHA]), "RGBA"), "BMP"))


def bmp(width, height, bits, data, compression=0, palette=b"", masks=b"", header=40, n_colours=0):
    if header == 12:
        dib = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        dib = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, compression, len(data), 2835, 2835, n_colours, 0)
        dib = (dib + masks).ljust(header, b"\0") if header > 40 else dib + masks
    at = 14 + len(dib) + len(palette)
    return b"BM" + struct.pack("<IHHI", at + len(data), 0, 0, at) + dib + palette + data


def bmp_rows(rows, flip=True):
    rows = [bytes(r) for r in rows]
    return b"".join(r.ljust((len(r) + 3) // 4 * 4, b"\0") for r in (rows[::-1] if flip else rows))


bgr = RGB[..., ::-1]
put("top_down.bmp", bmp(W, -H, 24, bmp_rows([r.tobytes() for r in bgr], False)))
put("core.bmp", bmp(W, H, 24, bmp_rows([r.tobytes() for r in bgr]), header=12))
p16 = rng.integers(0, 256, (16, 3)).astype(np.uint8)
i16 = RGB[..., 0] >> 4
bgrx = np.dstack([p16[None, :, ::-1], np.zeros((1, 16), np.uint8)])[0].tobytes()
put("four_bit.bmp", bmp(W, H, 4, bmp_rows([pack_row(r, 4) for r in i16]), palette=bgrx, n_colours=16), p16[i16])
put("core_palette.bmp", bmp(W, H, 4, bmp_rows([pack_row(r, 4) for r in i16]), palette=p16[:, ::-1].tobytes(), header=12), p16[i16])
r5, g5, b5, g6 = RGB[..., 0] >> 3, RGB[..., 1] >> 3, RGB[..., 2] >> 3, RGB[..., 1] >> 2
w555 = (r5.astype(np.uint16) << 10 | g5.astype(np.uint16) << 5 | b5).astype("<u2")
w565 = (r5.astype(np.uint16) << 11 | g6.astype(np.uint16) << 5 | b5).astype("<u2")
put("rgb555.bmp", bmp(W, H, 16, bmp_rows([r.tobytes() for r in w555])))
put("rgb565.bmp", bmp(W, H, 16, bmp_rows([r.tobytes() for r in w565]), compression=3, masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F)))
w32 = RGB[..., 0].astype(np.uint32) << 24 | RGB[..., 1].astype(np.uint32) << 16 | RGB[..., 2].astype(np.uint32) << 8 | ALPHA
put("alpha_masks.bmp", bmp(W, H, 32, bmp_rows([r.astype("<u4").tobytes() for r in w32]), compression=3, header=108, masks=struct.pack("<IIII", 0xFF000000, 0xFF0000, 0xFF00, 0xFF)), over_white(RGB, ALPHA))
i8 = np.array([[1, 1, 1, 1, 1, 2, 3, 4, 5], [0, 0, 7, 7, 7, 7, 9, 9, 9], [3, 1, 4, 1, 5, 9, 2, 6, 5]], np.uint8)
runs8 = b"\x00\x09" + bytes(i8[2]) + b"\0" + b"\0\0" + b"\0\2\2\0" + b"\4\7\3\x09\0\0" + b"\5\1\0\4\2\3\4\5\0\1"
put("rle8.bmp", bmp(9, 3, 8, runs8, compression=1, palette=bgrx, n_colours=16), p16[i8])
i4 = np.array([[1, 2, 1, 2, 1], [3, 4, 5, 6, 7]], np.uint8)
runs4 = b"\0\5\x34\x56\x70\0" + b"\0\0" + b"\5\x12\0\1"
put("rle4.bmp", bmp(5, 2, 4, runs4, compression=2, palette=bgrx, n_colours=16), p16[i4])

# --- PNM --------------------------------------------------------------------------------------------------------------
bits = (RGB[..., 0] < 128).astype(int)
put("plain.pbm", b"P1\n# a comment\n%d %d\n" % (W, H) + b"\n".join("".join(map(str, r)).encode() for r in bits) + b"\n")
put("raw.pbm", b"P4 %d %d\n" % (W, H) + b"".join(pack_row(r, 1) for r in bits))
put("plain.pgm", b"P2\n%d %d # size\n100\n" % (W, H) + b"\n".join(b" ".join(b"%d" % (int(v) * 100 // 255) for v in r) for r in RGB[..., 0]))
put("raw.pgm", b"P5\n%d\n%d\n255\n" % (W, H) + RGB[..., 0].tobytes())
put("grey16.pgm", b"P5 %d %d 65535\n" % (W, H) + g16.astype(">u2").tobytes(), grey16(g16))
put("maxval1000.pgm", b"P5 %d %d 1000\n" % (W, H) + (g16 % 1001).astype(">u2").tobytes())
put("maxval6.pgm", b"P5 7 1 6\n" + bytes(range(7)))
put("plain.ppm", b"P3\n%d %d\n255\n" % (W, H) + b"\n".join(b" ".join(b"%d" % v for v in r.reshape(-1)) for r in RGB) + b"\n")
put("maxval16.ppm", b"P6 %d %d 65535\n" % (W, H) + rgb16.astype(">u2").tobytes())

# --- resizing ---------------------------------------------------------------------------------------------------------
source = smooth(47, 53)
tensors["source"] = source
NAMES = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}
for name, code in NAMES.items():
    for w, h in ((30, 20), (106, 94), (40, 9), (53, 13), (71, 5)):  # the last three run the vertical pass first
        tensors[f"resize.{name}.{w}x{h}"] = np.asarray(Image.fromarray(source).resize((w, h), code))

header, offset, blob = {}, 0, b""
for name in sorted(tensors):
    t = np.ascontiguousarray(tensors[name]).astype(np.uint8)
    assert t.ndim == 3 and t.shape[2] == 3, (name, t.shape)
    header[name] = {"dtype": "U8", "shape": list(t.shape), "data_offsets": [offset, offset + t.size]}
    blob += t.tobytes()
    offset += t.size
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
(HERE / "extra.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + blob)
print(len(tensors), "tensors,", len(list(OUT.iterdir())), "files,", sum(p.stat().st_size for p in OUT.iterdir()), "bytes,", offset, "bytes of pixels")
