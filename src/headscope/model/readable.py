"""Tokens as people read them: Ġ and ▁ as spaces, bytes decoded, everything else unchanged."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Spelling = Literal["bytes", "metaspace", "plain"]
"""How a vocabulary writes spaces and odd characters: GPT-2's byte alphabet, SentencePiece's
▁ and <0x0A>, or as they are (WordPiece)."""

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def spelling_of(tokenizer: PreTrainedTokenizerBase) -> Spelling:
    """How a transformers tokenizer spells its tokens, from its decoder."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        # Its own state as JSON: the whole tokenizer's is megabytes of vocabulary.
        parts = "" if backend.decoder is None else backend.decoder.__getstate__().decode()
        if "ByteLevel" in parts:
            return "bytes"
        if "Metaspace" in parts or "▁" in parts:
            return "metaspace"
        return "plain"
    if hasattr(tokenizer, "byte_decoder"):
        return "bytes"
    return "metaspace" if hasattr(tokenizer, "sp_model") else "plain"


class Speller:
    """A tokenizer's ids as readable tokens, each looked up once.

    Args:
        tokenizer: whose ids. Its vocabulary should not change meanwhile.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._names: dict[int, str] = {}

    @functools.cached_property
    def spelling(self) -> Spelling:
        """How the vocabulary writes spaces."""
        return spelling_of(self._tokenizer)

    def spell(self, ids: Sequence[int]) -> list[str]:
        """The tokens of ids. A model may have more ids than its tokenizer has names."""
        names = self._names
        unseen = [token for token in dict.fromkeys(ids) if token not in names]
        if unseen:
            known = self._tokenizer.convert_ids_to_tokens(unseen)
            named = [
                f"<{token}>" if name is None else name
                for token, name in zip(unseen, known, strict=True)
            ]
            special = self._tokenizer.all_special_tokens
            names.update(zip(unseen, readable(named, self.spelling, special), strict=True))
        return [names[token] for token in ids]


def readable(tokens: Sequence[str], spelling: Spelling, special: Collection[str]) -> list[str]:
    """Vocabulary strings as text; special tokens stay as they are."""
    if spelling == "plain":
        return list(tokens)
    spell = _from_bytes if spelling == "bytes" else _from_metaspace
    return [token if token in special else spell(token) for token in tokens]


def _from_bytes(token: str) -> str:
    alphabet = byte_alphabet()
    if not all(character in alphabet for character in token):
        return token  # an added token, written as it is
    return _decoded(bytes(alphabet[character] for character in token))


def _from_metaspace(token: str) -> str:
    if match := BYTE_TOKEN.fullmatch(token):
        return _decoded(bytes([int(match[1], 16)]))
    return token.replace("▁", " ")


def _decoded(raw: bytes) -> str:
    """UTF-8 where it is; the bytes of a broken character as <0xE2>."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(chr(b) if b < 0x80 else f"<0x{b:02X}>" for b in raw)


@functools.cache
def byte_alphabet() -> dict[str, int]:
    """Character → byte of GPT-2's alphabet: printable bytes stand for themselves, the
    others for the characters from U+0100 on, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in set(printable)]
    shown = {chr(byte): byte for byte in printable}
    return shown | {chr(0x100 + i): byte for i, byte in enumerate(others)}
