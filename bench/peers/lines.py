"""What the measuring scripts of this folder share: sizes of the measurements, the picture, and the lines they print."""
import json
import struct
import zlib

PROMPT_TOKENS, NEW_TOKENS, BATCH, PICTURE_PX = 640, 32, 8, 336
QUESTION = "What is this?"


def put(engine, weights, threads, metric, value, unit, **more):
    print(json.dumps(dict(engine=engine, weights=weights, metric=metric, value=round(value, 4), unit=unit,
                          threads=threads, **more)), flush=True)


def picture_rgb(seed=0, side=PICTURE_PX):
    """Bytes of RGB: waves of colour whose phase is the seed, so that no two pictures are the same."""
    column = bytes((7 * x + 31 * seed) & 255 for x in range(side))
    out = bytearray()
    for y in range(side):
        for x in range(side):
            out += bytes((column[x], (5 * y + seed) & 255, (x * y // 64 + 3 * seed) & 255))
    return bytes(out)


def png(rgb, side=PICTURE_PX):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + rgb[3 * side * y:3 * side * (y + 1)] for y in range(side))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
