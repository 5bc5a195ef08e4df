"""Where the numbers come from, run by run, as rows of text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headscope.reporting.subjects import Subject, corpus_name
from headscope.results.result import Result

__all__ = ["provenance_of"]

SHOWN = ("unit", "by", "tagset", "null_keys", "max_tokens")


def provenance_of(subject: Subject) -> list[dict[str, Any]]:
    """For each run: a title and rows of name and text."""
    return [
        {"title": f"{subject.title} on {corpus_name(result)}", "rows": _rows(result)}
        for result in subject.results
    ]


def _rows(result: Result) -> list[list[str]]:
    about = result.provenance
    model: Mapping[str, Any] = about.get("model", {})
    corpus: Mapping[str, Any] = about.get("corpus", {})
    counts: Mapping[str, Any] = about.get("counts", {})
    settings: Mapping[str, Any] = about.get("settings", {})
    edits = model.get("edits") or []
    left_out = corpus.get("left_out") or {}
    metrics = [str(metric.get("name")) for metric in about.get("metrics", [])]
    rows = {
        "Model": _joined(model, "name", "architecture", "dtype"),
        "Source": model.get("source"),
        "Revision": model.get("revision"),
        "Weights (SHA-256)": model.get("weights_sha256"),
        "Notes": "; ".join(map(str, model.get("notes") or [])),
        "Edits": "; ".join(map(str, edits)),
        "Attention read by": model.get("route"),
        "Corpus": corpus_name(result),
        "Corpus hash": corpus.get("hash"),
        "Documents": _count(counts.get("documents", corpus.get("documents"))),
        "Tokens": _count(counts.get("tokens")),
        "Cut to the model's length": _count(counts.get("truncated")),
        "Failed": _count(counts.get("failed")),
        "Left out when reading": json.dumps(left_out, ensure_ascii=False) if left_out else None,
        "Settings": ", ".join(f"{k} {settings[k]}" for k in SHOWN if settings.get(k)),
        "Plan": about.get("plan"),
        "Measured": ", ".join(metrics),
        "Versions": ", ".join(f"{k} {v}" for k, v in about.get("versions", {}).items()),
    }
    return [[name, str(text)] for name, text in rows.items() if text not in (None, "")]


def _joined(values: Mapping[str, Any], *names: str) -> str:
    return ", ".join(str(values[name]) for name in names if values.get(name))


def _count(value: Any) -> str | None:
    return f"{int(value):,}" if isinstance(value, int | float) else None
