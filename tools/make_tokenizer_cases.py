#!/usr/bin/env python3
"""Writes tests/data/tokenizers: small tokenizers and what the reference libraries make of chosen and random texts.

Needs: pip install tokenizers sentencepiece protobuf  (made with tokenizers 0.23.3, sentencepiece 0.2.3).

    tools/make_tokenizer_cases.py [--models DIR] [--out DIR]

--models names a directory with small checkpoints (llava, qwen2_vl, fuyu, blip2, instructblip, qwen_vl): their tokenizer
files are copied. Without it the copies that are there are used again.

Files
  flags.json       two base tokenizers, every combination of an added token's flags, ids of texts around such tokens
  components.json  one tokenizer for each normalizer, pre-tokenizer, model option, post-processor and decoder, with cases
  <name>/          a tokenizer's files and cases.json
  spm_*/           tokenizer.model trained here, cases.json from the sentencepiece package
"""

import argparse
import base64
import copy
import io
import itertools
import json
import pathlib
import random
import shutil
import unicodedata

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2

REPO = pathlib.Path(__file__).resolve().parent.parent
METASPACE = "\u2581"
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHOSEN = [
    "", " ", "   ", "Hello, world!", " leading space", "trailing space ", "two  spaces   three", "->", "(x):\n", "12345",
    "Cafe\u0301 au lait", "a\u00a0b", "\u3000wide", "can't we'll I'M they've", "tabs\tand\nnew\r\nlines\n\n",
    "\u4f60\u597d\uff0c\u4e16\u754c", "\u3053\u3093\u306b\u3061\u306f", "\uc548\ub155\ud558\uc138\uc694",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440", "\u0645\u0631\u062d\u0628\u0627",
    "\u0939\u093f\u0928\u094d\u0926\u0940", "\U0001F600\U0001F468\u200d\U0001F469\u200d\U0001F467", "x" * 70,
    "\u00bd \u2167 \u0663 \u00b2", "\ufb01nd \u212b \u1e9e \u0130 \u0131", "a\u0323\u0301\u0307", "\u1100\u1161\u11a8",
    "\x00\x01\x7f\ufeff\u200b\ufffd", "<s>typed</s> <unk> <0x0A>", "<|im_start|>user", "\u2581under\u2581score",
    "foo_bar(baz)[0] += 3.14e-10; // note", "http://x.y/z?q=1&r=%20", "\U0001d511\U0001d521 \u2460 \uff21",
]
RANGES = [(0x20, 0x7E)] * 6 + [
    (0x00, 0x1F), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x4FF), (0x590, 0x6FF), (0x900, 0xDFF), (0xE00, 0xEFF),
    (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
    (0xF900, 0xFAFF), (0xFB00, 0xFFEF), (0x1D400, 0x1D7FF), (0x1F300, 0x1F6FF), (0x20000, 0x20100)]


def old_character(c):
    """Assigned in Unicode 8 or so: the libraries' tables of newer characters differ among themselves."""
    return unicodedata.ucd_3_2_0.category(c) != "Cn"


def random_texts(rng, n, words):
    def character():
        while True:
            low, high = rng.choice(RANGES)
            c = chr(rng.randint(low, high))
            if old_character(c):
                return c

    out = []
    for _ in range(n):
        parts = []
        for _ in range(rng.randint(1, 10)):
            kind = rng.random()
            if kind < 0.5:
                parts.append(rng.choice(words))
            elif kind < 0.8:
                parts.append(character() * rng.randint(1, 3))
            else:
                parts.append(rng.choice([" ", "  ", "\n", "\t", " \u00a0"]))
            if rng.random() < 0.5:
                parts.append(" ")
        out.append("".join(parts))
    return out


def dump(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n", encoding="ascii")


def cases_of(tokenizer, texts):
    out = []
    for text in texts:
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        special = tokenizer.encode(text).ids
        case = {"text": text, "ids": plain}
        if special != plain:
            case["ids_with_special"] = special
        if special:
            case["decoded"] = tokenizer.decode(special, skip_special_tokens=False)
            case["decoded_skip"] = tokenizer.decode(special, skip_special_tokens=True)
        out.append(case)
    return out


def load(document):
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(document))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def document(model, normalizer=None, pre_tokenizer=None, post_processor=None, decoder=None, added=()):
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            dict({"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                  "special": True}, **flags) for i, c, flags in added],
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": decoder,
        "model": model}


def bpe(vocab, merges, **options):
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": {token: i for i, token in enumerate(vocab)}, "merges": merges}
    model.update(options)
    return model


BYTES = ["<0x%02X>" % b for b in range(256)]
FUSE = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}


def byte_model(**options):
    """Spells every piece in bytes, so that ids show what normalizers and pre-tokenizers do."""
    return bpe(BYTES + ["\ue0f0", "\ue0f1", "\ue0f0\ue0f1"], [["\ue0f0", "\ue0f1"]], byte_fallback=True, **options)


def flags_file(out):
    """Case 7: all flags, in a byte-level and in a SentencePiece-style tokenizer."""
    space = "\u0120"
    byte_level = document(
        bpe([chr(c) for c in range(33, 127)] + [space, "\u010a", space + "x", "x" + "y"], [[space, "x"], ["x", "y"]]),
        pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True})
    metaspace = document(
        bpe(["<unk>"] + BYTES + [METASPACE, "x", "y", METASPACE + "x", "xy"], [[METASPACE, "x"], ["x", "y"]],
            unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        normalizer={"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": METASPACE},
            {"type": "Replace", "pattern": {"String": " "}, "content": METASPACE}]},
        decoder={"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": METASPACE}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})
    lowercase = copy.deepcopy(byte_level)
    lowercase["normalizer"] = {"type": "Lowercase"}
    texts = [" <a> ", "x<a>y", "<a><b>", "<a> <b>", "  <a>", "\n<a>\n", "<a>", "", "x <a> y", "x  <a>  <b>  y", "<a>x <b>x",
             "<A>x <a>", "_<a>_", "\u00e9<a> \u00e9", "x\u3000<a>\u00a0y", "<a>\t\n x", " x <a", "<a><a><a>", "-<a>- <b>1"]
    table = []
    for base, body in (("byte_level", byte_level), ("metaspace", metaspace), ("lowercase", lowercase)):
        for combination in itertools.product([False, True], repeat=5):
            flags = dict(zip(("single_word", "lstrip", "rstrip", "normalized", "special"), combination))
            if flags["single_word"] and base == "lowercase":
                continue
            body = copy.deepcopy(body)
            n = len(body["model"]["vocab"])
            body["added_tokens"] = [dict(flags, id=n + k, content=c) for k, c in enumerate(("<a>", "<b>"))]
            tokenizer = load(body)
            table.append({"base": base, "flags": flags, "ids": [tokenizer.encode(t).ids for t in texts]})
    dump(out / "flags.json", {"bases": {"byte_level": byte_level, "metaspace": metaspace, "lowercase": lowercase},
                              "texts": texts, "table": table})


def small_charsmap(folder):
    """A SentencePiece character map of a few rules, from a throw-away training."""
    rules = folder / "rules.tsv"
    rules.write_text("41\t61\nC9\tE9\n65 301\tE9\nFB01\t66 69\n200B\t\n3000\t20\n2460\t31\n1F600\t3A 29\n")
    prefix = folder / "charsmap"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e f g"] * 20), model_prefix=str(prefix), vocab_size=12,
        normalization_rule_tsv=str(rules), hard_vocab_limit=False, minloglevel=2)
    data = (prefix.with_suffix(".model")).read_bytes()
    return charsmap_of(data)


def fields(data):
    """(number, value) of a protobuf message: enough of the wire format for this."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            yield key >> 3, data[at:at + size]
            at += size


def charsmap_of(model):
    spec = next(value for number, value in fields(model) if number == 3)
    return next(value for number, value in fields(spec) if number == 2)


def components(out, scratch):
    entries = []
    rng = random.Random(3)
    texts = CHOSEN + random_texts(rng, 12, "the Isn't D\u00c9J\u00c0 x--y 12a34 \uff21\uff22 na\u00efve <0x41>".split())

    def add(name, body, which=texts):
        entries.append({"name": name, "tokenizer": body, "cases": cases_of(load(body), which)})

    def normalizer(name, value):
        add("normalizer " + name, document(byte_model(), normalizer=value, decoder=FUSE))

    def pre_tokenizer(name, value, normalizer=None):
        add("pre_tokenizer " + name,
            document(byte_model(end_of_word_suffix="|"), normalizer=normalizer, pre_tokenizer=value, decoder=FUSE))

    for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"):
        normalizer(name, {"type": name})
    for left, right in ((True, True), (True, False), (False, True)):
        normalizer(f"Strip {left} {right}", {"type": "Strip", "strip_left": left, "strip_right": right})
    normalizer("Prepend", {"type": "Prepend", "prepend": METASPACE})
    normalizer("Replace string", {"type": "Replace", "pattern": {"String": "l"}, "content": "LL"})
    normalizer("Replace regex", {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "})
    normalizer("Replace empty", {"type": "Replace", "pattern": {"Regex": "x*"}, "content": "-"})
    normalizer("Precompiled", {"type": "Precompiled",
                               "precompiled_charsmap": base64.b64encode(small_charsmap(scratch)).decode()})
    normalizer("Sequence", {"type": "Sequence", "normalizers": [
        {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True,
                                                                           "strip_right": True}]})
    for flags in itertools.product([False, True], repeat=2):
        for accents in (None, False, True):
            normalizer(f"BertNormalizer {flags} {accents}",
                       {"type": "BertNormalizer", "clean_text": flags[0], "handle_chinese_chars": flags[0],
                        "strip_accents": accents, "lowercase": flags[1]})

    for prefix, regex in itertools.product([False, True], repeat=2):
        pre_tokenizer(f"ByteLevel {prefix} {regex}", {"type": "ByteLevel", "add_prefix_space": prefix,
                                                      "trim_offsets": True, "use_regex": regex})
    for scheme, split in itertools.product(["always", "first", "never"], [False, True]):
        value = {"type": "Metaspace", "replacement": METASPACE, "prepend_scheme": scheme, "split": split}
        pre_tokenizer(f"Metaspace {scheme} {split}", value)
        add(f"pre_tokenizer Metaspace {scheme} {split} added",
            document(byte_model(), pre_tokenizer=value, added=[(259, "<a>", {}), (260, "<b>", {"rstrip": True})]),
            ["<a>x", "x<a>y", " x<a> y", "<b> x<a>", "<a>", " <a>x y", "x <b>  y"])
    pre_tokenizer("Metaspace first after Strip",
                  {"type": "Metaspace", "replacement": METASPACE, "prepend_scheme": "first", "split": True},
                  {"type": "Strip", "strip_left": True, "strip_right": False})
    pre_tokenizer("Metaspace first after Replace",
                  {"type": "Metaspace", "replacement": METASPACE, "prepend_scheme": "first", "split": True},
                  {"type": "Replace", "pattern": {"Regex": "[Ha]e|  "}, "content": "z"})
    behaviors = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
    for behavior, invert in itertools.product(behaviors, [False, True]):
        pre_tokenizer(f"Split {behavior} {invert}", {"type": "Split", "pattern": {"Regex": r"[aeiou\s]"},
                                                     "behavior": behavior, "invert": invert})
    for behavior in behaviors:
        pre_tokenizer(f"Punctuation {behavior}", {"type": "Punctuation", "behavior": behavior})
    patterns = {
        "qwen": QWEN, "gpt2 like": r"'s|'t| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "deepseek": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
        "cjk ranges": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        "words": r"\w+|[^\w\s]+", "word boundary": r"\b", "not word": r"\W", "not space": r"\S+", "hex": r"\h+",
        "any case": r"(?i)HELLO|Caf\u00c9".encode().decode("unicode_escape"), "lines": r"(?m)^.+$", "dot": r".",
        "nested class": r"[a-m[x-z]]+", "intersection": r"[a-z&&[^aeiou]]+", "posix": r"[[:alpha:]]+|[[:digit:]]",
        "negated property": r"\P{L}+", "negated class": r"[^\S\n]+", "script": r"\p{Han}+|\p{Hiragana}",
        "long name": r"\p{Letter}+", "caret": r"\p{^L}", "code point": r"\x{4f60}|\u0041", "backreference": r"(.)\1",
        "lookbehind": r"(?<=o)[a-z]", "atomic": r"(?>a+)b|x++", "lazy": r"l+?", "alternatives": r"|x", "interval": r"o{,2}w",
    }
    for name, pattern in patterns.items():
        pre_tokenizer("Split regex " + name, {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
                                              "invert": False})
    pre_tokenizer("Split string", {"type": "Split", "pattern": {"String": "l."}, "behavior": "Isolated", "invert": False})
    for value in ({"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "BertPreTokenizer"},
                  {"type": "Digits", "individual_digits": True}, {"type": "Digits", "individual_digits": False},
                  {"type": "CharDelimiterSplit", "delimiter": "l"}, {"type": "FixedLength", "length": 3}):
        pre_tokenizer(" ".join(str(v) for v in value.values()), value)
    pre_tokenizer("Sequence", {"type": "Sequence", "pretokenizers": [
        {"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": True},
        {"type": "Punctuation", "behavior": "Isolated"}]})

    letters = list("abcdehilnorstw \u00e9")
    words = ["hello there", "stern nest", "xhelloxx", "lll", "sst", "\u00e9ee", "ab zz q ba", "tttttttttttt" * 5, "hello"]
    merges = [["h", "e"], ["l", "l"], ["he", "ll"], ["hell", "o"], ["t", "h"], ["th", "e"], ["s", "t"], ["t", "t"],
              ["tt", "tt"], ["e", "r"], ["st", "er"]]
    vocab = letters + ["".join(m) for m in merges] + ["<unk>", "hello there"]
    spelled = [" ".join(m) for m in merges]
    add("bpe pairs", document(bpe(vocab, merges)), words)
    add("bpe strings", document(bpe(vocab, spelled)), words)
    add("bpe unk", document(bpe(vocab, merges, unk_token="<unk>")), words)
    add("bpe fuse_unk", document(bpe(vocab, merges, unk_token="<unk>", fuse_unk=True)), words)
    add("bpe ignore_merges", document(bpe(vocab, merges, ignore_merges=True)), words)
    add("bpe some bytes", document(bpe(vocab + BYTES[:0x78], merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)),
        words)
    add("bpe duplicate merge", document(bpe(vocab, merges + [["h", "e"]])), words)
    continued = ["##" + c for c in letters] + ["he", "hell", "hello", "##ll", "##st", "##ster", "##er"]
    add("bpe prefix", document(
        bpe(letters + continued + ["<unk>"], [["h", "##e"], ["##l", "##l"], ["he", "##ll"], ["hell", "##o"], ["##s", "##t"],
                                              ["##e", "##r"], ["##st", "##er"]],
            unk_token="<unk>", continuing_subword_prefix="##"),
        pre_tokenizer={"type": "WhitespaceSplit"}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}), words)
    suffixed = [c + "</w>" for c in letters]
    add("bpe suffix", document(
        bpe(letters + suffixed + ["he", "ll", "hell", "hello</w>", "<unk>"],
            [["h", "e"], ["l", "l"], ["he", "ll"], ["hell", "o</w>"]], unk_token="<unk>", end_of_word_suffix="</w>"),
        pre_tokenizer={"type": "WhitespaceSplit"}, decoder={"type": "BPEDecoder", "suffix": "</w>"}), words)

    scores = [("<unk>", 0.0), (METASPACE, -2.0)] + [(c, -4.0 - i / 10) for i, c in enumerate(letters)]
    scores += [("he", -3.0), ("ll", -3.5), ("hello", -5.0), (METASPACE + "hello", -4.5), ("st", -3.0), ("lll", -5.1),
               ("the", -4.0), ("there", -6.0), ("ee", -8.0), ("\u00e9e", -7.5), ("<0x41>", -1.0)]
    for fallback in (False, True):
        more = [(b, -9.0) for b in BYTES if b != "<0x41>"] if fallback else []
        for split in (False, True):
            add(f"unigram {fallback} {split}", document(
                {"type": "Unigram", "unk_id": 0, "vocab": scores + more, "byte_fallback": fallback},
                pre_tokenizer={"type": "Metaspace", "replacement": METASPACE, "prepend_scheme": "always", "split": split},
                decoder={"type": "Metaspace", "replacement": METASPACE, "prepend_scheme": "always", "split": split},
                added=[(0, "<unk>", {})]), words + ["\u4f60he\u597d\u4f60llo", "A<0x41>", "<unk>he"])
    pieces = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "he", "hell", "##o", "##ll", "##lo", "there", "##re", "the", "st", "##ern",
              "n", "##est", "a", "##b", "##", "\u00e9", "##e", ".", "'", "s", "do", "not", ","]
    wordpiece = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                 "max_input_chars_per_word": 12, "vocab": {t: i for i, t in enumerate(pieces)}}
    template = {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                           {"SpecialToken": {"id": "end", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]},
                                   "end": {"id": "end", "ids": [2, 3], "tokens": ["[SEP]", "[PAD]"]}}}
    named = [(i, pieces[i], {}) for i in range(4)]
    more = words + ["hello . the 's do not , [CLS] x", "helloab hello's", "thehelltherehellothe"]
    for name, post in (
            ("TemplateProcessing", template),
            ("BertProcessing", {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]}),
            ("RobertaProcessing", {"type": "RobertaProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1],
                                   "trim_offsets": True, "add_prefix_space": True}),
            ("ByteLevel", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}),
            ("Sequence", {"type": "Sequence", "processors": [
                {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, template]})):
        for cleanup in (False, True):
            add(f"wordpiece {name} {cleanup}", document(
                wordpiece, pre_tokenizer={"type": "BertPreTokenizer"}, post_processor=post,
                decoder={"type": "WordPiece", "prefix": "##", "cleanup": cleanup}, added=named), more)
    add("wordlevel", document({"type": "WordLevel", "vocab": {"<unk>": 0, "hello": 1, "there": 2, "<s>": 3},
                               "unk_token": "<unk>"}, pre_tokenizer={"type": "WhitespaceSplit"}, added=[(3, "<s>", {})]),
        words + ["<s>hello<s> there"])

    def decoder(name, value, tokens):
        """Decodes words of a word-level vocabulary as given."""
        body = document({"type": "WordLevel", "vocab": {t: i for i, t in enumerate(tokens)}, "unk_token": tokens[0]},
                        decoder=value)
        tokenizer = load(body)
        cases = []
        for ids in [list(range(len(tokens))), list(range(len(tokens)))[::-1]] + [[i] for i in range(len(tokens))] + [
                [rng.randrange(len(tokens)) for _ in range(6)] for _ in range(8)]:
            cases.append({"decode": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
        entries.append({"name": "decoder " + name, "tokenizer": body, "cases": cases})

    tokens = [METASPACE + "a", "b" + METASPACE, METASPACE, "", " x ", "##y", "don't", METASPACE + METASPACE + "c", " .", "z</w>",
              "</w>", "aa"]
    decoder("none", None, tokens)
    decoder("ByteLevel", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            ["\u0120a", "\u00c3", "\u00a9", "\u00e4\u00bd", "\u0142", "\u4f60", "\u00f0\u0141\u013a\u0122", "x", "\u00c3(", "\u0121"])
    decoder("Metaspace", {"type": "Metaspace", "replacement": METASPACE, "prepend_scheme": "always", "split": True}, tokens)
    decoder("Metaspace never", {"type": "Metaspace", "replacement": METASPACE, "prepend_scheme": "never", "split": True},
            tokens)
    decoder("Replace", {"type": "Replace", "pattern": {"String": METASPACE}, "content": " "}, tokens)
    decoder("Replace regex", {"type": "Replace", "pattern": {"Regex": "[ab]+"}, "content": "<>"}, tokens)
    decoder("Strip", {"type": "Strip", "content": "a", "start": 1, "stop": 0}, tokens)
    decoder("Strip back", {"type": "Strip", "content": "c", "start": 0, "stop": 1}, ["abc", "cc", "ab", "bcc"])
    decoder("WordPiece", {"type": "WordPiece", "prefix": "##", "cleanup": True}, tokens)
    decoder("BPEDecoder", {"type": "BPEDecoder", "suffix": "</w>"}, tokens)
    decoder("Fuse", {"type": "Fuse"}, tokens)
    decoder("ByteFallback", {"type": "ByteFallback"}, ["<0x41>", "a", "<0x7f>", "<0xZZ>", "<0x4>", "b"])
    decoder("Sequence", {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": METASPACE}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}, tokens)
    dump(out / "components.json", entries)


def directory_cases(out, models):
    rng = random.Random(11)
    names = {"llava": "llava", "qwen2_vl": "qwen2_vl", "fuyu": "fuyu", "blip2": "blip2", "instructblip": "instructblip",
             "qformer": "instructblip/qformer_tokenizer", "qwen_vl": "qwen_vl"}
    for name, source in names.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        if models:
            for file in ("tokenizer.json", "tokenizer_config.json", "qwen.tiktoken"):
                if (models / source / file).exists():
                    shutil.copyfile(models / source / file, folder / file)
                    (folder / file).chmod(0o644)
        if name == "qwen_vl":
            if models:
                golden = json.loads((models / source / "golden.json").read_text())
                dump(folder / "cases.json", golden["tokenizer"])
            continue
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
        words = "What color is the circle? a small green ring at right USER: ASSISTANT: x1 don't".split() + added
        dump(folder / "cases.json", cases_of(tokenizer, CHOSEN + random_texts(rng, 60, words)))


def spm_cases(out):
    """tokenizer.model files; ids as transformers' slow LlamaTokenizer gives them between added tokens."""
    corpus = [" ".join(random.Random(i).choices(
        "the a small large red green circle square is at left right of what color shape how many are there hello world "
        "caf\u00e9 \u4f60\u597d question answer".split(), k=12)) for i in range(300)]
    rng = random.Random(5)
    words = "the small green circle caf\u00e9 what zebra \u4f60\u597d 12 ?! <0x41> [tag] <s>".split()
    texts = [t for t in CHOSEN if "\x00" not in t] + [
        t for t in random_texts(rng, 60, words) if "\x00" not in t]
    settings = {
        "spm_bpe": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                        remove_extra_whitespaces=False, vocab_size=420),
        "spm_unigram": dict(model_type="unigram", byte_fallback=True, vocab_size=420, user_defined_symbols=["[tag]"]),
        "spm_unigram_rules": dict(model_type="unigram", vocab_size=110, normalization_rule_tsv="rules"),
    }
    for name, options in settings.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        if options.get("normalization_rule_tsv"):
            rules = folder / "rules.tsv"
            rules.write_text("41\t61\nE9\t65\n65 301\t65\nFB01\t66 69\n200B\t\n3000\t20\n2460\t31\n")
            options = dict(options, normalization_rule_tsv=str(rules))
        elif name == "spm_unigram":
            rules = folder / "rules.tsv"
            rules.write_text("41\t61\nFB01\t66 69\n")
            options = dict(options, normalization_rule_tsv=str(rules))
        buffer = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus), model_writer=buffer, hard_vocab_limit=False,
                                                 num_threads=1, minloglevel=2, **options)
        (folder / "tokenizer.model").write_bytes(buffer.getvalue())
        (folder / "rules.tsv").unlink(missing_ok=True)
        processor = sentencepiece.SentencePieceProcessor(model_proto=buffer.getvalue())
        control = {processor.id_to_piece(i): i for i in range(processor.get_piece_size())
                   if processor.is_control(i) or processor.is_unknown(i)}
        model = sentencepiece_model_pb2.ModelProto.FromString(buffer.getvalue())
        model.normalizer_spec.add_dummy_prefix = False
        bare = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
        cases = []
        for text in texts:
            ids = []
            for part in split_on(text, control):
                ids += [control[part]] if part in control else processor.encode(part)
            case = {"text": text, "ids": ids, "ids_with_special": [processor.bos_id()] + ids}
            other = not_legacy(bare, text, control)
            if other != ids:
                case["ids_not_legacy"] = other
            cases.append(case)
        dump(folder / "cases.json", cases)


def not_legacy(bare, text, control):
    """LlamaTokenizer(legacy=False): the text starts with the metaspace, later parts keep their spaces."""
    unk = bare.id_to_piece(bare.unk_id())
    ids = []
    for k, part in enumerate(split_on(text, control)):
        if part in control:
            ids.append(control[part])
            continue
        if k == 0:
            part = METASPACE + part
        if part.startswith((METASPACE, " ")):
            ids += bare.encode(unk + part)[len(bare.encode(unk)):]
        else:
            ids += bare.encode(part)
    return ids


def split_on(text, tokens):
    out = []
    rest = ""
    while text:
        hit = next((t for t in tokens if text.startswith(t)), None)
        if hit is None:
            rest += text[0]
            text = text[1:]
            continue
        if rest:
            out.append(rest)
        rest = ""
        out.append(hit)
        text = text[len(hit):]
    return out + [rest] if rest else out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, help="directory with small checkpoints")
    parser.add_argument("--out", type=pathlib.Path, default=REPO / "tests" / "data" / "tokenizers")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    scratch = arguments.out / "scratch"
    scratch.mkdir(exist_ok=True)
    flags_file(arguments.out)
    components(arguments.out, scratch)
    shutil.rmtree(scratch)
    directory_cases(arguments.out, arguments.models)
    spm_cases(arguments.out)


if __name__ == "__main__":
    main()
