"""The page's tokenizer (TypeScript, run by Node) against the Rust library, on hostile texts."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from headscope.errors import InputError
from headscope.live.tokenizer import CODE_POINTS, page_tokenizer
from headscope.model.encode import encode
from headscope.model.model import Model

WEB = Path(__file__).parents[2] / "web"
RANGES = (
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x6FF),
    (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x2000, 0x206F), (0x20A0, 0x2BFF),
    (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFE00, 0xFFEF), (0x1D400, 0x1D7FF),
    (0x1F1E6, 0x1F1FF), (0x1F300, 0x1FAFF),
)  # fmt: skip
WORDS = (
    "the", "Don't", "we'll", "I've", "SHE'D", "naïve", "12,345.67", "3.〇", "well-known", "x_y",
    "http://a.b/c?d=e", "[MASK]", "[CLS]", "<|endoftext|>", "<end>", "ΣΑΣ", "ß", "İ", "ﬁ",
    "e\u0301", "\u200b", "\ufeff", "日本語", "👩\u200d👩\u200d👧", "🇫🇷🇩", "👍🏽", "¿qué?",
    "a\u00adb", "l·l", "\t", "\n", "\r\n", "\x85", "\x1c", "\xa0", "##", "##ing", "...",
    "'''", "'s", "'S", "’s", "",
)  # fmt: skip


def hostile_texts(count: int, seed: int) -> list[str]:
    """Mixtures of scripts, marks, emoji, controls and rare code points."""
    chooser = random.Random(seed)
    texts: list[str] = []
    while len(texts) < count:
        parts = []
        for _ in range(chooser.randint(1, 9)):
            kind = chooser.random()
            if kind < 0.35:
                parts.append(chooser.choice(WORDS))
            elif kind < 0.8:
                first, last = chooser.choice(RANGES)
                codes = [chooser.randint(first, last) for _ in range(chooser.randint(1, 7))]
                parts.append("".join(map(chr, codes)))
            elif kind < 0.95:
                parts.append("".join(chr(chooser.choice(CODE_POINTS)) for _ in range(3)))
            else:
                parts.append(chooser.choice("a1 .é日🙂") * chooser.randint(1, 130))
        text = chooser.choice(("", "", " ", "  ", "\n")).join(parts)
        if text.strip():
            texts.append(text)
    return texts


def read_by_page(model: Model, texts: list[str]) -> list[dict[str, Any]]:
    """What the page makes of texts."""
    if shutil.which("node") is None or not (WEB / "node_modules" / "esbuild").is_dir():
        pytest.skip("needs Node.js and web/node_modules (make web)")
    lines = [page_tokenizer(model.require_tokenizer()), *texts]
    done = subprocess.run(
        ["node", str(WEB / "tests" / "tokenize.mjs")],
        input="\n".join(map(json.dumps, lines)),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    first, *rows = (json.loads(line) for line in done.stdout.splitlines())
    assert first == {"failures": 0}
    assert len(rows) == len(texts)
    return rows


def compare(model: Model, count: int, seed: int) -> None:
    """Assert that ids, offsets, tokens and words of every text are Python's."""
    texts = hostile_texts(count, seed)
    n_compared = 0
    for text, row in zip(texts, read_by_page(model, texts), strict=True):
        try:
            tokens = encode(model.require_tokenizer(), text, max_length=None).tokens
        except InputError:  # no token of its own: the page refuses the text too
            assert all(row["special"])
            continue
        assert tokens.offsets is not None
        n_compared += 1
        assert row["ids"] == list(tokens.ids), text
        assert row["offsets"] == [list(span) for span in tokens.offsets], text
        assert row["tokens"] == list(tokens.tokens), text
        assert row["special"] == [int(flag) for flag in tokens.special], text
        # Node and Python know different versions of Unicode.
        if all(unicodedata.category(character) != "Cn" for character in text):
            assert row["word_texts"] == list(tokens.word_texts), text
            assert row["words"] == list(tokens.words), text
    assert n_compared > 0.9 * count


@pytest.mark.filterwarnings("ignore:.*tokens are")
def test_word_pieces_of_hostile_texts(tiny_bert: Model) -> None:
    compare(tiny_bert, 1000, seed=1)


def test_bytes_of_hostile_texts(tiny_llama: Model) -> None:
    compare(tiny_llama, 1000, seed=2)


@pytest.mark.packaged
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*tokens are")
@pytest.mark.parametrize("name", ["minilm", "smollm2"])
def test_packaged_tokenizers(name: str, request: pytest.FixtureRequest) -> None:
    compare(request.getfixturevalue(name), 5000, seed=3)
