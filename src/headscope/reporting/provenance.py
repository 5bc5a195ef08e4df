"""Where the numbers come from: the model and its runs, as rows of a name and a text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypedDict

from headscope.reporting.subjects import Subject
from headscope.reporting.table_figures import probe_name
from headscope.results.probe import Probe
from headscope.results.result import Result

SHOWN = ("unit", "by", "tagset", "null_keys", "max_tokens")
"""The settings of a run that are shown."""
Row = list[str]


class RunRows(TypedDict):
    """What is known about one run."""

    title: str
    rows: list[Row]


class Provenance(RunRows):
    """What is known about a model, and about its runs."""

    runs: list[RunRows]


def provenance_of(subject: Subject) -> Provenance:
    """The model, then each run on it."""
    runs: list[RunRows] = [{"title": r.corpus_name, "rows": _run_rows(r)} for r in subject.results]
    runs += [{"title": f"Probe: {probe_name(p)}", "rows": _probe_rows(p)} for p in subject.probes]
    return {"title": subject.title, "rows": _model_rows(subject.results[0]), "runs": runs}


def _model_rows(result: Result) -> list[Row]:
    model = result.provenance["model"]
    return _kept(
        {
            "Model": _joined(model, "name", "architecture", "dtype"),
            "Source": model.get("source"),
            "Revision": model.get("revision"),
            "Weights (SHA-256)": model.get("weights_sha256"),
            "Notes": "; ".join(map(str, model.get("notes") or [])),
            "Edits": "; ".join(map(str, model.get("edits") or [])),
            "Attention read by": model.get("route"),
        }
    )


def _run_rows(result: Result) -> list[Row]:
    about = result.provenance
    corpus, counts, settings = (about.get(name, {}) for name in ("corpus", "counts", "settings"))
    left_out = corpus.get("left_out") or {}
    metrics = [str(metric.get("name")) for metric in about.get("metrics", [])]
    documents = counts.get("documents", corpus.get("documents"))
    failures = [
        f"{_count(counts[key])} {what}"
        for key, what in (("truncated", "cut to the model's length"), ("failed", "failed"))
        if key in counts
    ]
    return _kept(
        {
            "Corpus": result.corpus_name,
            "Corpus hash": corpus.get("hash"),
            "Documents": ", ".join(filter(None, [_count(documents), *failures])),
            "Tokens": _count(counts.get("tokens")),
            "Skipped when reading": json.dumps(left_out, ensure_ascii=False) if left_out else None,
            "Settings": ", ".join(f"{k} {settings[k]}" for k in SHOWN if settings.get(k)),
            "Plan": about.get("plan"),
            "Measured": ", ".join(metrics),
            "Versions": _versions(about.get("versions", {})),
        }
    )


def _probe_rows(probe: Probe) -> list[Row]:
    about = probe.provenance
    treebanks = {
        name: _joined(about[name], "name", "documents", "sentences", "words", "hash")
        for name in ("train", "dev")
        if isinstance(about.get(name), Mapping)
    }
    return _kept(
        {
            "Trained on": treebanks.get("train"),
            "Scored on": treebanks.get("dev"),
            "Seed": about.get("seed"),
            "Versions": _versions(about.get("versions", {})),
        }
    )


def _kept(rows: Mapping[str, object]) -> list[Row]:
    """The rows that have a text."""
    return [[name, str(text)] for name, text in rows.items() if text not in (None, "")]


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def _joined(values: Mapping[str, object], *names: str) -> str:
    return ", ".join(str(values[name]) for name in names if values.get(name))


def _count(value: object) -> str | None:
    return f"{int(value):,}" if isinstance(value, int | float) else None
