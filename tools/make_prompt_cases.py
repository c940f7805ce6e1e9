#!/usr/bin/env python3
"""Freezes what transformers' apply_chat_template and tokenizers make of conversations with the chat templates of reference
directories: tests/data/prompts.json, which tests/parity/prompts_test.cc reads. Pictures are placeholders, not yet expanded.

Usage: python3 tools/make_prompt_cases.py NAME=DIRECTORY ...    (needs transformers 5.24 and tokenizers)
"""
import json
import pathlib
import sys

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "prompts.json"


def text(value):
    return {"type": "text", "text": value}


IMAGE, VIDEO = {"type": "image"}, {"type": "video"}


def say(role, *content):
    return {"role": role, "content": list(content)}


CONVERSATIONS = {
    "one_turn": [say("user", IMAGE, text("What is it?"))],
    "several_turns": [say("user", IMAGE, text("What is it?")), say("assistant", text("A star.")), say("user", text("Where?")),
                      say("assistant", text("At the left.")), say("user", IMAGE, text("And here?"))],
    "system": [say("system", text("Be brief.")), say("user", IMAGE, text("What is it?"))],
    "system_and_turns": [say("system", text("Be brief.")), say("user", text("Hello")), say("assistant", text("Hi there.")),
                         say("user", IMAGE, IMAGE, text("Which is larger?"))],
    "text_only": [say("user", text("What color is the sky?"))],
    "mixed_order": [say("user", text("First "), IMAGE, text(" then "), IMAGE, text(" and?"))],
    "unicode": [say("user", IMAGE, text("  Où est l'étoile ? 星は\n\tどこ…  "))],
    "video": [say("user", IMAGE, VIDEO, text("What happens?"))],
}


def template_of(directory):
    jinja = directory / "chat_template.jinja"
    return jinja.read_text() if jinja.exists() else json.loads((directory / "chat_template.json").read_text())["chat_template"]


def main():
    families = json.loads(OUT.read_text()) if OUT.exists() else {}  # those not named stay
    for argument in sys.argv[1:]:
        name, directory = argument.split("=", 1)
        directory = pathlib.Path(directory)
        config = json.loads((directory / "tokenizer_config.json").read_text())
        raw = Tokenizer.from_file(str(directory / "tokenizer.json"))
        tokens = {key: (value["content"] if isinstance(value, dict) else value)
                  for key in ("bos_token", "eos_token", "unk_token", "pad_token") if (value := config.get(key))}
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, **tokens)
        template = template_of(directory)
        cases = []
        for case, messages in CONVERSATIONS.items():
            if case == "video" and "video" not in template:
                continue
            for add in (True, False):
                out = {"name": case, "messages": messages, "add_generation_prompt": add}
                try:
                    out["prompt"] = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False,
                                                                  add_generation_prompt=add)
                    # Qwen3VLProcessor writes the time before each pair of frames; the test's video is one pair at 2 a second.
                    whole = out["prompt"]
                    if config.get("processor_class") == "Qwen3VLProcessor":
                        whole = whole.replace("<|video_pad|>", "<0.2 seconds><|vision_start|><|video_pad|><|vision_end|>")
                    # As ProcessorMixin.apply_chat_template: a template that writes BOS does not get it twice.
                    bos = tokens.get("bos_token")
                    out["ids"] = raw.encode(whole, add_special_tokens=not (bos and out["prompt"].startswith(bos))).ids
                except Exception as error:  # what the template raises
                    out["raised"] = str(error)
                cases.append(out)
        families[name] = cases
        print(name, len(cases), "cases,", sum("raised" in c for c in cases), "raise")
    OUT.write_text("{\n" + ",\n".join(
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]" for name, cases in families.items()) + "\n}\n")


if __name__ == "__main__":
    main()
