#!/usr/bin/env python3
"""Freezes what Python's jinja2 makes of the chat templates and snippets in tests/data/chat_templates, with the environment
that transformers uses (utils/chat_template_utils.py): ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loop
controls, the generation block, its own tojson, raise_exception, strftime_now. Needs jinja2 >= 3.1 only.

Writes expected.json (every *.jinja with every conversation of conversations.json) and snippets.json (every snippet of
snippets.txt with the variables of variables.json). The C++ tests read these two files.

Usage: python3 tools/make_template_cases.py
"""
import copy
import datetime
import json
import pathlib
import warnings

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

DIRECTORY = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "chat_templates"
NOW = datetime.datetime(2024, 7, 4, 15, 7, 9)  # what strftime_now sees; the tests inject the same
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
SEPARATOR = "\n%%%\n"


class Generation(jinja2.ext.Extension):
    """{% generation %}: the text of its block; transformers also remembers where it stands."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def make_environment():
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: NOW.strftime(form)
    return environment


def render(environment, source, variables):
    """{"output"}, {"raised": text of raise_exception} or {"error": what jinja2 said}."""
    try:
        text = environment.from_string(source).render(**copy.deepcopy(variables))
        text.encode()  # lone surrogates are no text
        return {"output": text}
    except jinja2.exceptions.TemplateError as error:
        if type(error) is jinja2.exceptions.TemplateError:
            return {"raised": str(error)}
        return {"error": f"{type(error).__name__}: {error}"}
    except Exception as error:  # whatever Python raises inside a template
        return {"error": f"{type(error).__name__}: {error}"}


def template_cases(environment):
    conversations = json.loads((DIRECTORY / "conversations.json").read_text())
    cases = {}
    for path in sorted(DIRECTORY.glob("*.jinja")):
        results = []
        for conversation in conversations:
            for add_generation_prompt in (True, False):
                variables = {
                    "documents": None,
                    **SPECIAL_TOKENS,
                    **conversation.get("variables", {}),
                    "messages": conversation["messages"],
                    "tools": conversation.get("tools"),
                    "add_generation_prompt": add_generation_prompt,
                }
                results.append(render(environment, path.read_text(), variables))
        cases[path.name] = results
    return cases


def snippet_cases(environment):
    variables = json.loads((DIRECTORY / "variables.json").read_text())
    # Newlines are part of the snippets: read without translating them.
    snippets = (DIRECTORY / "snippets.txt").read_bytes().decode().split(SEPARATOR)
    cases = []
    for snippet in snippets:
        result = render(environment, snippet, variables)
        assert " at 0x" not in result.get("output", ""), f"prints an address: {snippet}"
        cases.append({"template": snippet, **result})
    return cases


def main():
    warnings.simplefilter("ignore")
    environment = make_environment()
    for name, cases in (("expected.json", template_cases(environment)), ("snippets.json", snippet_cases(environment))):
        (DIRECTORY / name).write_text(json.dumps(cases, ensure_ascii=True, indent=1) + "\n")
        flat = [c for group in cases.values() for c in group] if isinstance(cases, dict) else cases
        n_output = sum("output" in c for c in flat)
        print(f"{name}: {len(flat)} cases, {n_output} with output, {len(flat) - n_output} that fail")


if __name__ == "__main__":
    main()
