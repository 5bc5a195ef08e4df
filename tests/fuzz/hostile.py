"""Hostile input, by hypothesis: bytes, strings and damaged copies of real files.

A run takes some 30 seconds and is the same each time. `HEADSCOPE_FUZZ=10000` tries ten thousand
inputs in all, other ones in every run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

TRIES = int(os.environ.get("HEADSCOPE_FUZZ") or 0)
LONGEST = 20.0
"""Seconds that one input may take: of this process's own time, and six times as many by the clock,
because a machine may do other things too."""
CASES = {
    "alignment": (200, 400),
    "damaged corpora": (60, 300),  # of each of five formats
    "bytes as corpora": (100, 600),
    "broken compression": (60, 500),
    "the wrong format": (30, 60),
    "hostile items": (300, 840),
    "payloads": (60, 400),
    "pages": (40, 300),
    "saved traces": (8, 200),
    "damaged files": (30, 500),
    "bytes as files": (8, 200),
    "files with wrong parts": (10, 200),
    "fields of files": (24, 1600),
    "damaged runs": (6, 200),
    "fields of checkpoints": (12, 1000),
    "plans": (10, 200),
    "verified folders": (16, 300),
    "self-checks": (20, 200),
    "stores": (20, 150),
    "converted models": (20, 150),
    "command lines": (40, 200),
    "payloads in a browser": (8, 100),
    "requests to the lab": (50, 200),
}
"""Kind of input → how many are tried in a short run, and of ten thousand."""

PIECES = (
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xc3\x28",
    b"\xed\xa0\x80",  # a surrogate, as no UTF-8 has it
    b"\xf4\x90\x80\x80",  # above Unicode
    b"\r",
    b"\r\n",
    b"\n\n\n",
    b"\x0b\x0c\x1c\x1d\x85",
    "\u2028\u2029\u0085\u00a0\u3000".encode(),
    "\u202e\u200b\ufeff\u0301".encode(),
    "\U0001f469\u200d\U0001f52c".encode(),
    b"\t",
    b"\t" * 30,
    b"#",
    b"# newdoc id = \n",
    b"#begin document (x); part 000\n",
    b"#end document\n",
    b"1-2\t_\n",
    b"0.1\t_\n",
    b"-1",
    b"999999999999999999999999",
    b"1e999",
    b"NaN",
    b"((((((((",
    b"))))))))",
    b"Entity=(1-x-1(2)",
    b"(1|1)|(2|2)",
    b'{"text": ',
    b"[" * 2000,
    b"\\ud800",
    b"'\"`$(){}<>&;|",
    b"A" * 100_000,
)

NASTY = (
    "",
    " ",
    "\x00",
    "\ud800",
    "a\udfffb",
    "\u202e\u200b",
    "\n\r\u2028",
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>",
    "&amp;<b>",
    "../../etc/passwd",
    "~nobody/x",
    "/dev/null/x",
    "%s%n{0}{x!r}",
    "-",
    "--",
    "-1",
    "1e400",
    "nan",
    "9" * 400,
    "\U0001f469\u200d\U0001f52c" * 3,
    "é" * 3000,
)


def count(kind: str) -> int:
    """Return how many inputs of a kind are tried."""
    short, long = CASES[kind]
    return max(1, long * TRIES // 10_000) if TRIES else short


def fuzz(kind: str) -> Callable[[Any], Any]:
    """Inputs of that kind, as many as it has coming to it."""
    return settings(
        max_examples=count(kind),
        derandomize=not TRIES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if TRIES else [])],
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def quick() -> Iterator[None]:
    """Nothing hangs."""
    start, spent = time.monotonic(), time.process_time()
    yield
    assert time.process_time() - spent < LONGEST
    assert time.monotonic() - start < 6 * LONGEST


def texts(longest: int = 40) -> st.SearchStrategy[str]:
    """Any string, lone surrogates and control characters among them."""
    return st.one_of(
        st.sampled_from(NASTY),
        st.text(st.characters(), max_size=longest),
        st.text(st.sampled_from("ab .,\u00e9\U0001f600\u0301\x00\ud800\u202e"), max_size=longest),
    )


@st.composite
def damaged(draw: st.DrawFn, original: bytes, most: int = 6) -> bytes:
    """A copy with a few things cut, doubled, moved, overwritten or put in."""
    data = original
    for _ in range(draw(st.integers(1, most))):
        n = len(data)
        a, b = sorted((draw(st.integers(0, n)), draw(st.integers(0, n))))
        b = min(b, a + 400)
        how = draw(st.integers(0, 7))
        if how == 0:
            data = data[:a] + data[b:]
        elif how == 1:
            data = data[:b] + data[a:b] + data[b:]
        elif how == 2:
            data = data[:a] + draw(st.sampled_from(PIECES)) + data[a:]
        elif how == 3:
            data = data[:a] + draw(st.binary(min_size=1, max_size=8)) + data[a + 1 :]
        elif how == 4:
            data = data[:a]
        elif how == 5:
            data = data.replace(b"\n", draw(st.sampled_from((b"\r\n", b"\r", b"\n\n", b""))))
        elif how == 6:  # a field
            data = _with_field(data, draw)
        else:  # two lines change places
            lines = data.split(b"\n")
            i, j = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
            lines[i], lines[j] = lines[j], lines[i]
            data = b"\n".join(lines)
    return data


def _with_field(data: bytes, draw: st.DrawFn) -> bytes:
    lines = data.split(b"\n")
    at = draw(st.integers(0, len(lines) - 1))
    fields = lines[at].split(b"\t")
    fields[draw(st.integers(0, len(fields) - 1))] = draw(st.sampled_from(PIECES))
    lines[at] = b"\t".join(fields)
    return b"\n".join(lines)
