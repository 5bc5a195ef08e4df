"""The text of the study: sentences and segments of every document, drawn by a hash."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import headscope as hs
from headscope.errors import InputError
from headscope.text.document import Document

__all__ = ["FILES", "TRAIN", "draw_per_document", "read_ewt", "read_gum", "segments", "sentences"]

FILES = ("en_gum-train", "en_gum-dev")
EWT = "ud_ewt/en_ewt-ud-dev.conllu"
"""Of the second corpus, beside the folder of GUM."""
TRAIN = 177
"""Documents of the training part, which come first."""
SENTENCES = 10
SEGMENTS = 1


def read_gum(folder: Path, *, ontogum: bool = False) -> list[Document]:
    """All documents of GUM's training and development parts, by GUM's own coreference or by
    that of OntoNotes' guidelines.
    """
    documents: list[Document] = []
    for name in FILES:
        path = folder / f"{name}.conllu"
        if not path.is_file():
            raise InputError(
                f"{path} is not there. Put GUM's CoNLL-U files ({', '.join(FILES)}; "
                "github.com/UniversalDependencies/UD_English-GUM) into the folder of --data."
            )
        other = folder / f"{name}.ontogum.conll" if ontogum else None
        documents.extend(hs.read(path, unit="document", coreference=other))
    return documents


def read_ewt(folder: Path) -> list[Document]:
    """All documents of EWT's development part: weblogs, mails, answers, reviews."""
    path = folder.parent / EWT
    if not path.is_file():
        raise InputError(
            f"{path} is not there. Put EWT's development part (github.com/UniversalDependencies/"
            "UD_English-EWT) beside the folder of --data."
        )
    return list(hs.read(path, unit="document"))


def sentences(
    documents: Iterable[Document], per_document: int = SENTENCES, name: str = "GUM"
) -> hs.Corpus:
    """Sentences of each document: Vig & Belinkov's unit."""
    pieces = (piece for document in documents for piece in document.split("sentence"))
    return hs.read(draw_per_document(pieces, per_document), name=f"{name}, sentences")


def segments(model: hs.Model, documents: Iterable[Document], name: str = "GUM") -> hs.Corpus:
    """Segments of at most 128 tokens, one of each document: Clark et al.'s unit."""
    cut = hs.cut_segments(model, hs.read(list(documents)))
    return hs.read(draw_per_document(cut, SEGMENTS), name=f"{name}, segments")


def draw_per_document(pieces: Iterable[Document], n: int) -> list[Document]:
    """At most `n` pieces of each document, those with the smallest hash of their id, in the
    order of the text: the same ones on every machine.
    """
    by_source: dict[str, list[Document]] = defaultdict(list)
    for piece in pieces:
        by_source[piece.part_of or piece.id].append(piece)
    chosen = []
    for group in by_source.values():
        kept = {piece.id for piece in sorted(group, key=_key)[:n]}
        chosen.extend(piece for piece in group if piece.id in kept)
    return chosen


def _key(piece: Document) -> bytes:
    return hashlib.blake2b(piece.id.encode(), digest_size=8).digest()
