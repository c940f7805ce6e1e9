#!/usr/bin/env python3
"""Makes tests/data/golden/qwen2_vl_sliding: a small random Qwen2-VL in which one layer sees all tokens and the others a
window that is shorter than the prompt, with reference values (tools/make_golden.py).

Tokenizer, template and picture are those of tests/data/golden/qwen2_vl. Weights are stored as bfloat16 to keep the file small;
the reference and the parity test compute in float32. Needs what tools/make_golden.py needs.
"""
import argparse
import json
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from make_golden import make_inputs, run_case, take_parts  # noqa: E402

SOURCE = HERE.parent / "tests/data/golden/qwen2_vl"
OUT = HERE.parent / "tests/data/golden/qwen2_vl_sliding"


def main():
    import torch
    import transformers
    config = transformers.AutoConfig.from_pretrained(SOURCE)
    fields = config.to_dict()
    fields["text_config"].update(hidden_size=64, intermediate_size=120, num_attention_heads=2, use_sliding_window=True,
                                 sliding_window=13, max_window_layers=1, layer_types=None)
    fields["vision_config"].update(depth=2, embed_dim=48, hidden_size=64, num_heads=3)
    config = transformers.Qwen2VLConfig(**fields)
    torch.manual_seed(13)
    model = transformers.Qwen2VLForConditionalGeneration(config).eval()
    with torch.no_grad():  # wider than the usual start, biases and norms too, so that every weight shows
        for key, weight in model.named_parameters():
            is_norm = "norm" in key and key.endswith("weight") or key.endswith("ln_q.weight")
            weight.copy_(torch.randn_like(weight) * (0.2 if weight.dim() == 1 else 1.5 / weight[0].numel() ** 0.5) + is_norm)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    model.to(torch.bfloat16).save_pretrained(OUT)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.json", "generation_config.json",
                 "preprocessor_config.json", "a.png"):
        shutil.copy(SOURCE / file, OUT / file)
    write_golden(config)


class Processor:
    """Pictures and text without the video processor, which needs torchvision."""

    def __init__(self, config):
        import transformers
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
        self.images = Qwen2VLImageProcessorPil.from_pretrained(OUT)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(OUT)
        self.chat_template = json.loads((OUT / "chat_template.json").read_text())["chat_template"]
        self.image_token_id = config.image_token_id

    def apply_chat_template(self, messages, **arguments):
        return self.tokenizer.apply_chat_template(messages, chat_template=self.chat_template, **arguments)

    def __call__(self, text, return_tensors, images=()):
        import torch
        pictures = self.images(images=list(images), return_tensors=return_tensors)
        counts = [int(grid.prod()) // self.images.merge_size**2 for grid in pictures["image_grid_thw"]]
        ids = []
        for token in self.tokenizer(text)["input_ids"]:
            ids += [token] * (counts.pop(0) if token == self.image_token_id else 1)
        input_ids = torch.tensor([ids])
        return dict(input_ids=input_ids, attention_mask=torch.ones_like(input_ids),
                    mm_token_type_ids=(input_ids == self.image_token_id).long(), **pictures)


def write_golden(config):
    import torch
    import transformers
    from safetensors.torch import save_file
    model = transformers.Qwen2VLForConditionalGeneration.from_pretrained(OUT, dtype=torch.float32,
                                                                         attn_implementation="eager").eval()
    parts = take_parts([str(OUT / "a.png"), "What is in the picture?"], OUT)
    arguments = argparse.Namespace(steps=8, to_stop=False)
    processor = Processor(config)
    case, store = run_case(model, processor, parts, *make_inputs(processor, parts, OUT), arguments, True)
    save_file({key: value.contiguous() for key, value in store.items()}, str(OUT / "one_image.safetensors"))
    report = {"reference": f"transformers {transformers.__version__}, float32, eager", "cases": [{"name": "one_image", **case}]}
    (OUT / "golden.json").write_text(json.dumps(report, indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
