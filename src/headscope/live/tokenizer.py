"""Tables of a tokenizer for the page, asked from the Rust library character by character.

WordPiece as in BERT and byte-level BPE as in GPT-2 are covered; others are refused for typing, with
the reason. `web/src/live/tokenizer.ts` reads the tables, and repeats the vectors.
"""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from transformers import PreTrainedTokenizerBase

from headscope.model.encode import encode_texts, spelling_of

Tables = dict[str, Any]
N_VECTORS = 200
MAX_VECTOR = 60
"""Longest text among the vectors, in characters."""
CODE_POINTS = [
    code
    for code in (*range(0x34000), *range(0xE0000, 0xE1000), 0xF0000, 0x10FFFD)
    if not 0xD800 <= code <= 0xDFFF
]
"""All characters that Unicode has assigned, and one of each private plane."""
HANGUL = range(0xAC00, 0xD7A4)
"""Syllables, which the page takes apart by their formula."""


class Refusal(Exception):
    """Kind of tokenizer that the page does not have."""


def page_tokenizer(tokenizer: PreTrainedTokenizerBase) -> Tables:
    """Return what the page needs to tokenize as Python does; raise Refusal if it cannot."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise Refusal(f"{type(tokenizer).__name__} is written in Python")
    state = json.loads(backend.to_str())
    kind = state["model"]["type"]
    if kind == "WordPiece":
        tables = _word_piece_tables(backend, state)
    elif kind == "BPE":
        tables = _byte_tables(state)
    else:
        raise Refusal(f"{kind} tokenizers are not supported, only WordPiece and byte-level BPE")
    prefix, suffix = _template(tokenizer)
    model = {key: value for key, value in state["model"].items() if value is not None}
    return {
        "json": {"model": model, "added_tokens": _added_tokens(state)},
        "tables": tables,
        "prefix": prefix,
        "suffix": suffix,
        "spelling": {
            "kind": spelling_of(tokenizer),
            "special": sorted(set(tokenizer.all_special_tokens)),
        },
        "vectors": _vectors(tokenizer),
    }


def _added_tokens(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tokens that are matched as a whole, before all else."""
    added = []
    for token in state["added_tokens"]:
        flags = [name for name in ("lstrip", "rstrip", "single_word") if token[name]]
        if flags:
            raise Refusal(f"the added token {token['content']!r} has {', '.join(flags)}")
        if token["normalized"] and state["normalizer"] is not None:
            raise Refusal(f"the added token {token['content']!r} is matched in normalized text")
        added.append({"content": token["content"], "id": token["id"], "normalized": False})
    return added


def _template(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return the ids that stand before and after every text."""
    found = set()
    for text in ("a", "The cat sat."):
        whole: list[int] = tokenizer(text)["input_ids"]
        body: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        starts = [i for i in range(len(whole)) if whole[i : i + len(body)] == body]
        if not body or not starts:
            raise Refusal("special tokens do not stand around the text")
        found.add((tuple(whole[: starts[0]]), tuple(whole[starts[0] + len(body) :])))
    if len(found) > 1:
        raise Refusal("special tokens depend on the text")
    prefix, suffix = found.pop()
    return [*prefix], [*suffix]


def _word_piece_tables(backend: Any, state: Mapping[str, Any]) -> Tables:
    """Return how the normalizer changes each character, and where words are split."""
    for part, expected in (("normalizer", "BertNormalizer"), ("pre_tokenizer", "BertPreTokenizer")):
        if (state[part] or {}).get("type") != expected:
            raise Refusal(f"its {part} is {(state[part] or {}).get('type')}, not {expected}")
    normalized = {code: backend.normalizer.normalize_str(chr(code)) for code in CODE_POINTS}
    changed = {code: text for code, text in normalized.items() if text != chr(code)}
    used = {ord(c) for text in changed.values() for c in text}
    used |= {code for code in CODE_POINTS if code not in changed}
    n_words: dict[int, int] = {
        code: len(backend.pre_tokenizer.pre_tokenize_str(f"a{chr(code)}a")) for code in sorted(used)
    }
    spaced = [code for code, text in changed.items() if text == f" {chr(code)} "]
    other = {
        code: text
        for code, text in changed.items()
        if text and text != f" {chr(code)} " and not _is_decomposed(code, text)
    }
    return {
        "kind": "bert",
        "removed": _ranges(code for code, text in changed.items() if not text),
        "spaced": _ranges(spaced),
        "hangul": any(_is_decomposed(code, text) for code, text in changed.items()),
        "map": other,
        "punct": _ranges(code for code, n in n_words.items() if n == 3),
        "space": _ranges(code for code, n in n_words.items() if n == 2),
    }


def _is_decomposed(code: int, text: str) -> bool:
    return code in HANGUL and text == unicodedata.normalize("NFD", chr(code))


def _byte_tables(state: Mapping[str, Any]) -> Tables:
    """Return the classes of characters in GPT-2's pattern, as the Rust library has them."""
    from tokenizers.pre_tokenizers import ByteLevel, Digits

    model = state["model"]
    flags = ("dropout", "byte_fallback", "ignore_merges", "fuse_unk")
    for name in (*flags, "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise Refusal(f"its BPE has {name}={model[name]!r}")
    if state["normalizer"] is not None:
        raise Refusal(f"its normalizer is {state['normalizer']['type']}; expected no normalizer")
    steps = state["pre_tokenizer"] or {"type": "no pre-tokenizer"}
    steps = steps["pretokenizers"] if steps["type"] == "Sequence" else [steps]
    *before, last = steps
    is_bytes = last["type"] == "ByteLevel" and last.get("use_regex", True)
    has_digits = [step["type"] == "Digits" and step["individual_digits"] for step in before]
    if not is_bytes or not all(has_digits) or len(before) > 1:
        raise Refusal(f"its pre-tokenizer is {' + '.join(step['type'] for step in steps)}")
    by_bytes, by_digit = ByteLevel(add_prefix_space=False), Digits(individual_digits=True)
    letters, numbers, spaces, digits = [], [], [], []
    for code in CODE_POINTS:
        character = chr(code)
        if before and len(by_digit.pre_tokenize_str(f"a{character}")) == 2:
            digits.append(code)
        if len(by_bytes.pre_tokenize_str(f"a{character}")) == 1:
            letters.append(code)
        elif len(by_bytes.pre_tokenize_str(f"1{character}")) == 1:
            numbers.append(code)
        elif len(by_bytes.pre_tokenize_str(f"!{character}")) != 1:
            spaces.append(code)
    return {
        "kind": "byte",
        "prefix_space": bool(last["add_prefix_space"]),
        "L": _ranges(letters),
        "N": _ranges(numbers),
        "S": _ranges(spaces),
        "D": _ranges(digits),
    }


def _ranges(codes: Iterable[int]) -> list[list[int]]:
    """Return first and last of each run of code points; surrogates do not end a run."""
    found: list[list[int]] = []
    for code in codes:
        if found and code - 1 in (found[-1][1], 0xDFFF) and found[-1][1] in (code - 1, 0xD7FF):
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


SAMPLES = (
    "The doctor asked the nurse a question, didn't she?", "naïve café ŒUVRE ǅ İstanbul ΣΊΣΥΦΟΣ",
    "1,234.56 ½ ٣٤٥ ² Ⅷ 2024-10-03", "مرحبا بالعالم", "שלום עולם", "東京都に住む。你好，世界",
    "한국어 문장", "हिन्दी में लिखें", "ภาษาไทย", "🙂👩‍👩‍👧🏽 ❤️ 🇫🇷", "a\u0301\u0327 e\u200d\ufeffx",
    "tab\there\nand  there\r\n ", "http://a.b/c?d=e&f#g_h", "don’t “quote” — it’s…",
    "\u00a0\u2003x\u3000y", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ﬁ ａｂｃ", "x=y*z/(a+b)**2;//c", "  two  spaces",
    "ALLCAPS mixedCase snake_case",
)  # fmt: skip


def _vectors(tokenizer: PreTrainedTokenizerBase) -> list[tuple[str, list[int]]]:
    """Return texts of many scripts with their ids: samples, and random cuts and mixtures."""
    chooser = random.Random(0)
    special = [str(token) for token in tokenizer.all_special_tokens]
    texts = [*SAMPLES, *(f"a {token}b" for token in special)][:N_VECTORS]
    while len(texts) < N_VECTORS:
        parts = []
        for _ in range(chooser.randint(1, 4)):
            sample = chooser.choice(SAMPLES)
            start = chooser.randrange(len(sample))
            rare = chr(chooser.choice(CODE_POINTS)) if chooser.random() < 0.3 else ""
            parts.append(sample[start : start + chooser.randint(1, 15)] + rare)
        text = chooser.choice(("", " ")).join(parts)[:MAX_VECTOR]
        if text.strip():
            texts.append(text)
    return [
        (text, encoded.inputs["input_ids"])
        for text, encoded in zip(
            texts, encode_texts(tokenizer, texts, max_length=None), strict=True
        )
    ]
