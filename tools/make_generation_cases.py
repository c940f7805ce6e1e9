#!/usr/bin/env python3
"""Makes tests/data/generation/cases.json: greedy ids of Hugging Face transformers under the settings of
generation_config.json that Triptych follows, for the small random LLaVA below tests/data/golden/llava.

    tools/make_generation_cases.py

Each case is what generation_config.json says beside the model's own end token, and the ids of the answer, the end token
included. Needs: pip install torch transformers pillow safetensors.
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from make_golden import complete_processor  # noqa: E402
MODEL = HERE.parent / "tests/data/golden/llava"
OUT = HERE.parent / "tests/data/generation/cases.json"
QUESTION = "What is in the picture?"
N_TOKENS = 16


def settings(plain, n_prompt, end):
    """name: settings, made from the answer without any."""
    a, b, c, d = plain[:4]
    towards_end = [[[end], 30.0]]  # the end is likeliest everywhere
    return {
        "plain": {},
        "suppress_tokens": {"suppress_tokens": [b, c]},
        "begin_suppress_tokens": {"begin_suppress_tokens": [a]},
        "bad_words_ids": {"bad_words_ids": [[a, b], [c], [b, c, d]]},
        "sequence_bias": {"sequence_bias": [[[a, b], -20.0], [[d], 3.0]]},
        "repetition_penalty": {"repetition_penalty": 1.6},
        "encoder_repetition_penalty": {"encoder_repetition_penalty": 2.5},
        "both_penalties": {"encoder_repetition_penalty": 0.4, "repetition_penalty": 0.7},
        "no_repeat_ngram_size_1": {"no_repeat_ngram_size": 1},
        "no_repeat_ngram_size_2": {"no_repeat_ngram_size": 2, "repetition_penalty": 0.6},
        "ends_at_once": {"sequence_bias": towards_end},
        "min_new_tokens": {"sequence_bias": towards_end, "min_new_tokens": 5},
        "min_length": {"sequence_bias": towards_end, "min_length": n_prompt + 7},
        "max_length": {"max_length": n_prompt + 6},
        "forced_eos_token_id": {"max_length": n_prompt + 6, "forced_eos_token_id": end},
        "forced_eos_token_ids": {"max_length": n_prompt + 6, "forced_eos_token_id": [d, end]},
        "forced_other_token": {"max_length": n_prompt + 6, "forced_eos_token_id": c},
        "exponential_decay_length_penalty": {"exponential_decay_length_penalty": [3, 1.9]},
        "decay_is_held_back": {"exponential_decay_length_penalty": [1, 3.0], "min_new_tokens": 9},
        "all": {"suppress_tokens": [c], "begin_suppress_tokens": [a], "bad_words_ids": [[b]], "no_repeat_ngram_size": 2,
                "repetition_penalty": 1.2, "encoder_repetition_penalty": 1.3, "min_new_tokens": 6, "max_length": n_prompt + 12,
                "forced_eos_token_id": end, "exponential_decay_length_penalty": [8, 1.5]},
    }


def main():
    import torch
    import transformers
    from PIL import Image
    model = transformers.LlavaForConditionalGeneration.from_pretrained(MODEL, dtype=torch.float32,
                                                                       attn_implementation="eager").eval()
    processor = transformers.AutoProcessor.from_pretrained(MODEL, backend="pil")
    complete_processor(processor, model.config)
    content = [{"type": "image"}, {"type": "text", "text": QUESTION}]
    prompt = processor.apply_chat_template([{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True)
    inputs = processor(text=prompt, images=[Image.open(MODEL / "a.png").convert("RGB")], return_tensors="pt")
    end = model.generation_config.eos_token_id
    n_prompt = inputs["input_ids"].shape[1]

    # Rows of the vocabulary that stand for no token, and the picture's placeholder, are never the answer's.
    n_ids = len(processor.tokenizer)

    def only_tokens(_ids, scores):
        scores[:, n_ids:] = scores[:, model.config.image_token_id] = -torch.inf
        return scores

    def answer(fields):
        own = {} if "max_length" in fields else {"max_new_tokens": N_TOKENS}
        config = transformers.GenerationConfig(do_sample=False, eos_token_id=end, bos_token_id=1, pad_token_id=0, **own, **fields)
        with torch.no_grad():
            done = model.generate(**inputs, generation_config=config, output_scores=True, return_dict_in_generate=True,
                                  logits_processor=transformers.LogitsProcessorList([only_tokens]))
        two = torch.stack([torch.topk(step[0], 2).values for step in done.scores])
        margin = min(float(best - second) for best, second in two.tolist())
        return done.sequences[0].tolist()[n_prompt:], margin

    plain, _ = answer({})
    cases = []
    for name, fields in settings(plain, n_prompt, end).items():
        ids, margin = answer(fields)
        print(f"{name}: {ids}, smallest margin {margin:.4f}", flush=True)
        cases.append({"name": name, "settings": fields, "ids": ids})
    report = {"reference": f"transformers {transformers.__version__}, float32, eager", "model": "tests/data/golden/llava",
              "picture": "a.png", "question": QUESTION, "max_new_tokens": N_TOKENS, "cases": cases}
    lines = json.dumps(report, ensure_ascii=False)
    lines = lines.replace('"cases": [', '"cases": [\n ').replace("]}, {", "]},\n {")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(lines + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
