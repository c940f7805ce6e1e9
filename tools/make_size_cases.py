#!/usr/bin/env python3
"""Records what the reference's processors make of pictures of every size: tests/data/sizes/reference.json.

    tools/make_size_cases.py [OUT]        (transformers 5.24, torch, Pillow 13, NumPy)

For Qwen-VL, whose processor is in no package, sampled pixel values by its published recipe (visual.py: Resize with bicubic,
ToTensor, Normalize) of five pictures.

Per family of the published geometry: the places a picture takes in the prompt (null: the reference refuses it), for all
sizes from 1x1 to 40x40, for 1xN and Nx1, and for 8000x8000. Counts are those of the reference's own arithmetic; wherever the
pixels can be made in reasonable memory the image processor really runs, and its result must have the counted size, or
fail where the count is null.
"""
import json
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import (BlipImageProcessorPil, CLIPImageProcessorPil, FuyuImageProcessorPil, LlavaNextImageProcessorPil,
                          LlavaOnevisionImageProcessorPil, Qwen2VLImageProcessorPil)
from transformers.utils import logging
from transformers.models.fuyu.processing_fuyu import FuyuProcessor
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor
from transformers.models.llava_onevision.modeling_llava_onevision import LlavaOnevisionModel
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor

warnings.filterwarnings("ignore")
logging.set_verbosity_error()
Image.MAX_IMAGE_PIXELS = None
OUT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "tests/data/sizes/reference.json")
SMALL = 40
PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]


def line_lengths():
    """All to 64, powers of two and their neighbours, the aspect ratio that Qwen2-VL refuses, a stride to 3000."""
    out = set(range(1, 65)) | set(range(67, 3000, 61)) | {99, 100, 101, 199, 200, 201, 335, 336, 337, 1079, 1080, 1081, 1919, 1920, 1921, 2160, 3000}
    for k in range(6, 12):
        out |= {2 ** k - 1, 2 ** k, 2 ** k + 1}
    return sorted(out)


def mend_fuyu():
    """transformers 5.24 hands this NumPy code a tensor without a batch dimension; values do not change."""
    original = FuyuImageProcessorPil.patchify_image

    def patchify(self, image, patch_size=None):
        return original(self, np.asarray(image), patch_size)
    FuyuImageProcessorPil.patchify_image = patchify


class Fixed:
    """One number of places for every size."""
    def __init__(self, processor, tokens, shape, between_px=lambda w, h: 0):
        self.processor, self.tokens, self.shape, self.between_px = processor, tokens, shape, between_px

    def count(self, w, h):
        return self.tokens

    def run(self, image):
        got = tuple(self.processor(image, return_tensors="np")["pixel_values"].shape)
        assert got == self.shape, (got, self.shape)
        return self.tokens


class LlavaNext:
    def __init__(self):
        self.image_processor = LlavaNextImageProcessorPil(size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336}, image_grid_pinpoints=PINPOINTS)
        self.patch_size, self.num_additional_image_tokens = 14, 1
        self._get_unpadded_features = types.MethodType(LlavaNextProcessor._get_unpadded_features, self)

    def count(self, w, h):
        return LlavaNextProcessor._get_number_of_features(self, h, w, 336, 336) - 1

    def between_px(self, w, h):
        return 0

    def run(self, image):
        """The count of the un-padding code that the model runs on the features."""
        from transformers.models.llava_next.modeling_llava_next import get_anyres_image_grid_shape, unpad_image
        out = self.image_processor(image, return_tensors="np")
        size = [int(x) for x in out["image_sizes"][0]]
        views = out["pixel_values"].shape[1]
        rows, cols = get_anyres_image_grid_shape(size, PINPOINTS, 336)
        assert views == 1 + rows * cols
        kept = unpad_image(torch.zeros(1, rows * 24, cols * 24), size)
        return 576 + kept.shape[1] * (kept.shape[2] + 1)


class LlavaOnevision:
    """384 pixels in patches of 14, 1 to 6 tiles both ways, anyres_max_9."""
    def __init__(self):
        self.image_processor = LlavaOnevisionImageProcessorPil()
        self.num_image_tokens, self.vision_aspect_ratio = 729, "anyres_max_9"
        self._get_unpadded_features = types.MethodType(LlavaOnevisionProcessor._get_unpadded_features, self)
        self.config = types.SimpleNamespace(image_grid_pinpoints=self.image_processor.image_grid_pinpoints,
                                            vision_config=types.SimpleNamespace(image_size=384, patch_size=14))

    def count(self, w, h):
        return LlavaOnevisionProcessor._get_number_of_features(self, h, w, 384, 384)

    def between_px(self, w, h):
        return 0

    def run(self, image):
        """The rows of the packing code that the model runs on the features."""
        out = self.image_processor(image, return_tensors="np")
        views = torch.zeros(out["pixel_values"].shape[1], 729, 1)
        rows, _ = LlavaOnevisionModel.pack_image_features(self, [views], [[int(x) for x in out["image_sizes"][0]]], torch.zeros(1), "anyres_max_9")
        return len(rows[0])


class Qwen2:
    def __init__(self, patch_px=14, limits=(3136, 12845056)):
        self.processor = Qwen2VLImageProcessorPil(min_pixels=limits[0], max_pixels=limits[1], patch_size=patch_px)
        self.patch_values = 3 * 2 * patch_px * patch_px

    def count(self, w, h):
        return self.processor.get_number_of_image_patches(h, w, {}) // 4

    def between_px(self, w, h):
        return 0

    def run(self, image):
        out = self.processor(image, return_tensors="np")
        t, h, w = (int(x) for x in out["image_grid_thw"][0])
        assert out["pixel_values"].shape == (t * h * w, self.patch_values)
        return t * h * w // 4


class Fuyu:
    def __init__(self):
        self.image_processor = FuyuImageProcessorPil(size={"height": 1080, "width": 1920}, patch_size={"height": 30, "width": 30})

    def tokens(self, images, h, w):
        out = self.image_processor.preprocess_with_tokenizer_info(image_input=images, image_present=torch.ones(1, 1, 1), image_unpadded_h=torch.tensor([[h]]),
                                                                  image_unpadded_w=torch.tensor([[w]]), image_placeholder_id=7, image_newline_id=9, variable_sized=True)
        return len(out["image_input_ids"][0][0])

    def count(self, w, h):
        """As FuyuProcessor._get_num_multimodal_tokens, on the size that resize() gives."""
        if w > 1920 or h > 1080:
            scale = min(1080 / h, 1920 / w)
            w, h = int(w * scale), int(h * scale)
        if w < 1 or h < 1:
            raise ValueError("height and width must be > 0")
        return -(-h // 30) * (-(-w // 30) + 1)

    def between_px(self, w, h):
        return 0 if (w * 7 + h * 3) % 5 == 0 or max(w, h) > 40 else 1 << 40  # slow: one in five of the small ones

    def run(self, image):
        out = self.image_processor(image, return_tensors="pt")
        images = torch.as_tensor(np.stack([np.asarray(x) for x in out["images"][0]]))[None] if not torch.is_tensor(out["images"]) else out["images"]
        return self.tokens(images, int(out["image_unpadded_heights"][0][0]), int(out["image_unpadded_widths"][0][0]))


def qwen_vl_pixels():
    mean = torch.tensor([0.48145466, 0.4578275, 0.40821073])[:, None, None]
    std = torch.tensor([0.26862954, 0.26130258, 0.27577711])[:, None, None]
    out = {}
    for path in sorted((Path(__file__).parent.parent / "tests/data/images/files").glob("shot_*.png")):
        image = Image.open(path).convert("RGB").resize((448, 448), Image.BICUBIC)
        pixels = (torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255) - mean) / std
        flat = pixels.flatten()
        indices = np.unique(np.linspace(0, flat.numel() - 1, 150).astype(int))
        out[path.name] = {"mean": float(flat.double().mean()), "indices": indices.tolist(), "values": [round(float(v), 6) for v in flat[indices]]}
    return out


def attempt(call):
    try:
        return call()
    except (ValueError, ZeroDivisionError) as error:
        return None


def record(family, w, h):
    """The count, checked against a real run where that is affordable."""
    count = attempt(lambda: family.count(w, h))
    if family.between_px(w, h) <= 3_000_000 or (w, h) in ((1, 300), (300, 1)) and family.between_px(w, h) < 1 << 40:
        image = Image.fromarray((np.arange(w * h * 3, dtype=np.uint32) * 7919 % 251).astype(np.uint8).reshape(h, w, 3))
        got = attempt(lambda: family.run(image))
        assert got == count, (type(family).__name__, w, h, got, count)
        record.n_run += 1
    return count


def main():
    mend_fuyu()
    short_336 = lambda w, h: 336 * 336 * max(w, h) // min(w, h)
    families = {
        "llava": Fixed(CLIPImageProcessorPil(size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336}), 576, (1, 3, 336, 336), short_336),
        "llava_next": LlavaNext(),
        "llava_onevision": LlavaOnevision(),
        "qwen2_vl": Qwen2(),
        "qwen3_vl": Qwen2(16, (65536, 16777216)),
        "fuyu": Fuyu(),
        "blip2": Fixed(BlipImageProcessorPil(size={"height": 224, "width": 224}), 32, (1, 3, 224, 224)),
    }
    lengths = line_lengths()
    out = {"reference": "transformers 5.24.0, Pillow 13.0.0", "lengths": lengths, "families": {}}
    for name, family in families.items():
        record.n_run = 0
        entry = {"small": [[record(family, w, h) for w in range(1, SMALL + 1)] for h in range(1, SMALL + 1)],
                 "wide": [record(family, n, 1) for n in lengths], "tall": [record(family, 1, n) for n in lengths], "large": record(family, 8000, 8000)}
        flat = {x for row in entry["small"] for x in row} | set(entry["wide"]) | set(entry["tall"]) | {entry["large"]}
        print(f"{name}: {SMALL * SMALL + 2 * len(lengths) + 1} sizes, {record.n_run} run through the image processor, "
              f"{sum(x is None for row in entry['small'] for x in row) + entry['wide'].count(None) + entry['tall'].count(None)} refused, "
              f"{len(flat)} different counts", flush=True)
        if len(flat) == 1:
            entry = flat.pop()
        out["families"][name] = entry
    out["qwen_vl_pixels"] = qwen_vl_pixels()
    OUT.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(out, separators=(",", ":"))
    OUT.write_text(text.replace('"families":', '\n"families":').replace('],[', '],\n[').replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
