"""What to call a result on figures and pages."""

from __future__ import annotations

from headscope.results.result import Result

__all__ = ["corpus_title"]


def corpus_title(result: Result) -> str:
    """The model and its corpus in few words: files by their names alone."""
    corpus = str(result.provenance["corpus"]["name"]).replace("\\", "/").rsplit("/", 1)[-1]
    return f"{result.model} · {corpus}"
