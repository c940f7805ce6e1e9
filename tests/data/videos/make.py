"""Makes the animations of this folder with their expected frames, and sampling*.json.

    python make.py        (needs Pillow 13, NumPy, safetensors; for sampling*.json transformers 5.24 and torch)

Frames of WebP are Pillow's, laid over white; those of GIF are composed here and, where Pillow does the same, compared with
Pillow's (see compose). Files are written byte by byte where Pillow's writer would change what is meant
(offsets, disposal, palettes, delays).
"""
import io, itertools, json, struct
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import save_file

HERE = Path(__file__).parent
rng = np.random.default_rng(11)
W, H = 20, 14


# --- GIF, written by hand ---------------------------------------------------------------------------------------------
def lzw(indices, bits):
    """Codes of one width: a clear code before the table would make them wider."""
    clear, size = 1 << bits, bits + 1
    codes = []
    for i, index in enumerate(indices):
        if i % ((1 << bits) - 2) == 0:
            codes.append(clear)
        codes.append(int(index))
    codes.append(clear + 1)
    value = n = 0
    out = bytearray()
    for code in codes:
        value |= code << n
        n += size
        while n >= 8:
            out.append(value & 255)
            value >>= 8
            n -= 8
    if n:
        out.append(value & 255)
    blocks = b"".join(bytes([len(out[i:i + 255])]) + bytes(out[i:i + 255]) for i in range(0, len(out), 255))
    return bytes([bits]) + blocks + b"\0"


def palette(n, seed):
    return np.random.default_rng(seed).integers(0, 256, (n, 3)).astype(np.uint8).tobytes()


def gif(frames, global_bits=3, background=0, screen=(W, H), loop=True):
    """frames: dicts of pixels [h, w], left, top, delay (1/100 s), disposal, transparent, local_bits, interlace, control."""
    flags = 0x80 | (global_bits - 1) if global_bits else 0
    out = b"GIF89a" + struct.pack("<HHBBB", *screen, flags, background, 0)
    out += palette(1 << global_bits, 1) if global_bits else b""
    if loop:
        out += b"\x21\xff\x0bNETSCAPE2.0\x03\x01\0\0\0"
    for i, f in enumerate(frames):
        if f.get("control", True):
            t = f.get("transparent")
            out += b"\x21\xf9\x04" + struct.pack("<BHBB", f.get("disposal", 0) << 2 | (t is not None), f.get("delay", 10), t or 0, 0)
        h, w = f["pixels"].shape
        local = f.get("local_bits", 0)
        out += b"," + struct.pack("<HHHHB", f.get("left", 0), f.get("top", 0), w, h,
                                  (0x80 | (local - 1) if local else 0) | (0x40 if f.get("interlace") else 0))
        out += palette(1 << local, 100 + i) if local else b""
        rows = list(range(h))
        if f.get("interlace"):
            rows = [*rows[0::8], *rows[4::8], *rows[2::4], *rows[1::2]]
        out += lzw(f["pixels"][rows].reshape(-1), max(2, local or global_bits or 8))
    return out + b";"


def part(h, w, n=8):
    return rng.integers(0, n, (h, w))


def random_frames():
    frames = []
    for i in range(int(rng.integers(2, 7))):
        local = int(rng.choice([0, 0, 2, 4]))
        n = 1 << (local or 3)
        if i == 0:
            h, w, top, left = H, W, 0, 0
            if rng.random() < .3:
                h, w, top, left = 8, 9, 3, 4
        else:
            h, w = int(rng.integers(1, H + 1)), int(rng.integers(1, W + 1))
            top, left = int(rng.integers(0, H - h + 1)), int(rng.integers(0, W - w + 1))
        frames.append(dict(pixels=part(h, w, n), top=top, left=left, delay=int(rng.integers(0, 30)),
                           disposal=int(rng.integers(0, 4)), local_bits=local, interlace=bool(rng.random() < .3),
                           transparent=int(rng.integers(0, n)) if rng.random() < .5 else None,
                           control=bool(rng.random() < .9)))
    return frames


# --- WebP, from pieces that Pillow encodes ----------------------------------------------------------------------------
def riff_chunk(kind, data):
    return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def webp_piece(rgba):
    f = io.BytesIO()
    Image.fromarray(rgba, "RGBA").save(f, "WEBP", lossless=True, exact=True)
    data = f.getvalue()
    at, out = 12, b""
    while at < len(data):  # the image chunks only
        n = struct.unpack("<I", data[at + 4:at + 8])[0]
        if data[at:at + 4] in (b"VP8L", b"VP8 ", b"ALPH"):
            out += data[at:at + 8 + n + n % 2]
        at += 8 + n + n % 2
    return out


def webp(frames, background=0):
    """frames: dicts of rgba [h, w, 4], left, top (even), delay ms, blend, dispose."""
    body = riff_chunk(b"VP8X", struct.pack("<I", 0x02 | 0x10) + (W - 1).to_bytes(3, "little") + (H - 1).to_bytes(3, "little"))
    body += riff_chunk(b"ANIM", struct.pack("<IH", background, 0))
    for f in frames:
        h, w = f["rgba"].shape[:2]
        head = b"".join(v.to_bytes(3, "little") for v in (f.get("left", 0) // 2, f.get("top", 0) // 2, w - 1, h - 1, f.get("delay", 40)))
        body += riff_chunk(b"ANMF", head + bytes([(0 if f.get("blend", True) else 2) | (1 if f.get("dispose") else 0)]) + webp_piece(f["rgba"]))
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def random_webp():
    frames = []
    for i in range(int(rng.integers(2, 6))):
        h, w = (H, W) if i == 0 and rng.random() < .5 else (int(rng.integers(1, H + 1)), int(rng.integers(1, W + 1)))
        top, left = int(rng.integers(0, H - h + 1)) // 2 * 2, int(rng.integers(0, W - w + 1)) // 2 * 2
        rgba = rng.integers(0, 256, (h, w, 4)).astype(np.uint8)
        rgba[..., 3] = rng.choice([0, 128, 255, 77], (h, w))
        frames.append(dict(rgba=rgba, top=top, left=left, delay=int(rng.integers(0, 300)), blend=bool(rng.random() < .6),
                           dispose=bool(rng.random() < .4)))
    return webp(frames, background=int(rng.integers(0, 1 << 32)))


# --- expected frames --------------------------------------------------------------------------------------------------
def over_white(image):
    rgba = image.convert("RGBA")
    return np.asarray(Image.alpha_composite(Image.new("RGBA", rgba.size, (255,) * 4), rgba).convert("RGB"))


def frames_of(data):
    image = Image.open(io.BytesIO(data))
    out = []
    for i in range(image.n_frames):
        image.seek(i)
        image.load()
        out.append((over_white(image), int(image.info.get("duration", 0))))
    return out


def compose(frames):
    """What browsers show: a frame that is disposed of leaves transparency. Pillow differs where the first frame or the
    disposed one has no transparent colour: it fills with a colour of the palette."""
    canvas = np.zeros((H, W, 4), np.uint8)
    out = []
    for i, f in enumerate(frames):
        before = canvas.copy()
        h, w = f["pixels"].shape
        top, left = f.get("top", 0), f.get("left", 0)
        colours = np.frombuffer(palette(1 << f["local_bits"], 100 + i) if f.get("local_bits") else palette(8, 1), np.uint8).reshape(-1, 3)
        control = f.get("control", True)
        drawn = np.ones((h, w), bool) if f.get("transparent") is None or not control else f["pixels"] != f["transparent"]
        canvas[top:top + h, left:left + w][drawn] = np.dstack([colours[f["pixels"]], np.full((h, w), 255, np.uint8)])[drawn]
        out.append((over_white(Image.fromarray(canvas.copy(), "RGBA")), f.get("delay", 10) * 10 if control else 0))
        disposal = f.get("disposal", 0) if control else 0
        if disposal == 2:
            canvas[top:top + h, left:left + w] = 0
        if disposal == 3:
            canvas = before
    return out


# --- which frames the reference takes ---------------------------------------------------------------------------------
def sampling_cases():
    import ast, math, types
    import torch, transformers
    from transformers.video_utils import VideoMetadata
    # The function alone, from its file: the module around it needs torchvision.
    path = Path(transformers.__file__).parent / "models/qwen2_vl/video_processing_qwen2_vl.py"
    method = next(n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef) and n.name == "sample_frames")
    scope = {"math": math, "torch": torch, "VideoMetadata": VideoMetadata}
    exec(compile(ast.Module([method], []), str(path), "exec"), scope)
    cases = []
    for total, source, fps, least, most in itertools.product(
            (2, 3, 5, 8, 49, 300, 1001), (10.0, 23.976, 30.0), (0.3, 2.0, 7.5), (4,), (16, 768)):
        processor = types.SimpleNamespace(num_frames=None, fps=None, temporal_patch_size=2, min_frames=least, max_frames=most)
        metadata = VideoMetadata(total_num_frames=total, fps=source)
        indices = scope["sample_frames"](processor, metadata, fps=fps)
        metadata.frames_indices = indices
        cases.append({"total": total, "source": source, "fps": fps, "min": least, "max": most, "n": len(indices),
                      "sum": int(indices.sum()), "first": indices[:8].tolist(), "last": int(indices[-1]),
                      "rate": metadata.sampled_fps})
    return cases


def cases_to_the_end():
    """The same of Qwen3-VL's processor."""
    from transformers import Qwen3VLVideoProcessor
    from transformers.video_utils import VideoMetadata
    cases = []
    for total, source, fps, most in itertools.product((1, 2, 3, 5, 8, 49, 1001), (10.0, 23.976), (0.3, 2.0, 7.5), (16, 767)):
        processor = Qwen3VLVideoProcessor(min_frames=4, max_frames=most)
        indices = processor.sample_frames(VideoMetadata(total_num_frames=total, fps=source), fps=fps)
        cases.append({"total": total, "source": source, "fps": fps, "min": 4, "max": most, "n": len(indices),
                      "sum": int(indices.sum()), "first": indices[:8].tolist()})
    return cases


def main():
    gifs = {
        # nothing but a change of delay; 0 and 1 hundredths are "not stated"
        "delays.gif": [dict(pixels=part(H, W), delay=d) for d in (50, 0, 1, 2, 100)],
        "mixed.gif": [dict(pixels=part(H, W), disposal=1), dict(pixels=part(5, 6), top=2, left=3, disposal=2, transparent=1),
                          dict(pixels=part(4, 4), top=9, left=14, disposal=3, local_bits=4),
                          dict(pixels=part(H, W), transparent=5, disposal=3, interlace=True),
                          dict(pixels=part(3, 9), left=11, disposal=2), dict(pixels=part(6, 6), top=8, transparent=0)],
        "late_start.gif": [dict(pixels=part(6, 6), top=4, left=4, disposal=2, transparent=2), dict(pixels=part(3, 3), disposal=3),
                           dict(pixels=part(2, 20), top=12)],
        "as_pillow.gif": [dict(pixels=part(H, W), transparent=3), dict(pixels=part(5, 6), top=2, left=3, disposal=2, transparent=1),
                          dict(pixels=part(9, 9), top=4, left=8, disposal=3, local_bits=4), dict(pixels=part(H, W), transparent=5, disposal=3),
                          dict(pixels=part(4, 9), left=11, transparent=6)],
        **{f"random{i}.gif": random_frames() for i in range(6)},
    }
    webps = {
        "blend.webp": webp([dict(rgba=np.dstack([part(H, W, 256)] * 3 + [rng.choice([0, 255, 90], (H, W))]).astype(np.uint8), delay=40),
                            dict(rgba=np.dstack([part(6, 8, 256)] * 3 + [rng.choice([0, 255, 90], (6, 8))]).astype(np.uint8), top=2, left=4, delay=0, dispose=True),
                            dict(rgba=np.dstack([part(8, 8, 256)] * 3 + [rng.choice([0, 255], (8, 8))]).astype(np.uint8), top=4, left=8, delay=700, blend=False),
                            dict(rgba=np.dstack([part(5, 5, 256)] * 3 + [np.full((5, 5), 128)]).astype(np.uint8), delay=60)], background=0xff3366aa),
        **{f"random{i}.webp": random_webp() for i in range(4)},
    }
    tensors = {}
    for name, data in [(n, gif(f)) for n, f in gifs.items()] + list(webps.items()):
        (HERE / name).write_bytes(data)
        expected = compose(gifs[name]) if name in gifs else frames_of(data)
        if name in ("delays.gif", "as_pillow.gif", "late_start.gif"):
            for (a, t), (b, u) in zip(expected, frames_of(data), strict=True):
                assert (a == b).all() and t == u, name
        for i, (pixels, duration) in enumerate(expected):
            tensors[f"frame.{name}.{i}.{duration}"] = np.ascontiguousarray(pixels)
    save_file(tensors, HERE / "frames.safetensors")
    for name, cases in (("sampling.json", sampling_cases()), ("sampling_to_the_end.json", cases_to_the_end())):
        (HERE / name).write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
