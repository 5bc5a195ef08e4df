"""Clark et al.'s Figure 3: how much the loss depends on attention, by class of keys and layer."""

from __future__ import annotations

import xarray as xr
from matplotlib.figure import Figure

from headscope.errors import InputError
from headscope.figures.style import GRAY, PALETTE, new_figure, styled, ticks
from headscope.heads.map import corpus_title
from headscope.results.result import Result

__all__ = ["clark_figure_3", "removal_figure"]


def clark_figure_3(result: Result) -> Figure:
    """Mean |∂L/∂a| by layer, for each class of keys and for all keys (section 3.2)."""
    if "importance_by_layer" not in result:
        raise InputError("This figure shows gradients: make the result with headscope.importance.")
    values = result["importance_by_layer"]
    names = [str(n) for n in values["gradient_class"].values if n not in ("rest", "punctuation")]
    if any(name.startswith(("[", "<")) for name in names):
        names.remove("first")
    with styled():
        figure = new_figure(5.0, 2.9)
        axes = figure.subplots()
        layers = values["layer"].values
        for number, name in enumerate(names):
            is_all = name == "all"
            axes.plot(
                layers,
                values.sel(gradient_class=name),
                color=GRAY if is_all else PALETTE[number],
                linestyle=(0, (4, 3)) if is_all else "-",
                marker="o",
                markersize=2.5,
                linewidth=1.2,
                label={"first": "first token", "all": "all keys"}.get(name, name),
            )
        axes.set_yscale("log")
        axes.set_xticks([layers[i] for i in ticks(len(layers))])
        axes.set_xlabel("Layer")
        axes.set_ylabel("Mean |∂L/∂a|  (nats)")
        axes.set_title("How much the loss depends on attention to …")
        axes.legend()
        figure.supxlabel(
            f"{corpus_title(result)} · loss {float(result['loss']):.2f} nats per token",
            fontsize=6.5,
            color=GRAY,
        )
    return figure


def removal_figure(checked: xr.Dataset) -> Figure:
    """What `check_importance` found: the estimated rise of the loss against the real one."""
    names = [str(n) for n in checked["key_class"].values]
    with styled():
        figure = new_figure(2.4 * len(names) + 0.4, 2.5)
        panels = figure.subplots(1, len(names), squeeze=False)[0]
        for number, (axes, name) in enumerate(zip(panels, names, strict=True)):
            at = checked.sel(key_class=name)
            axes.axline((0, 0), slope=1, color=GRAY, linewidth=0.6, linestyle=(0, (4, 3)))
            axes.scatter(
                at["removal_estimate"], at["removal"], s=7, color=PALETTE[number], linewidths=0
            )
            axes.set_title(f"{name}: r = {float(at['r_estimate']):.2f}")
            axes.set_xlabel("Estimated from the gradient (nats)")
        panels[0].set_ylabel("Rise of the loss when removed (nats)")
    return figure
