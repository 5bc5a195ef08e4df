"""Clark et al.'s Figure 3: how much the loss depends on attention, by class of keys and layer."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from headscope.errors import InputError
from headscope.figures.style import GRAY, PALETTE, caption, new_figure, styled, ticks
from headscope.results.result import Result, short_name
from headscope.text.token_classes import FIRST, PUNCTUATION, REST, is_repeated


def clark_figure_3(result: Result) -> Figure:
    """Mean |∂L/∂a| by layer, for each class of keys and for all keys (section 3.2)."""
    if "importance_by_layer" not in result:
        raise InputError("This figure shows gradients: make the result with headscope.importance.")
    values = result["importance_by_layer"]
    names = [str(n) for n in values["gradient_class"].values if n not in (REST, PUNCTUATION)]
    if is_repeated(values):
        names.remove(FIRST)
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
        caption(
            figure,
            f"{result.title} · loss {float(result['loss']):.2f} nats per token",
        )
    return figure


def removal_figure(checked: xr.Dataset) -> Figure:
    """Draw what `check_importance` returns: how much the loss rises when attention to a class
    of keys is removed, in part or wholly, against what the gradient foretold. A point is a
    head; on the dashed line the gradient is right.
    """
    names = [str(n) for n in checked["key_class"].values]
    levels = [float(level) for level in checked["level"].values]
    layers = checked["layer"].broadcast_like(checked["removal_estimate"].isel(key_class=0))
    with styled():
        figure = new_figure(2.1 * len(levels) + 0.9, 2.0 * len(names) + 0.5)
        panels = figure.subplots(len(names), len(levels), squeeze=False)
        for row, name in zip(panels, names, strict=True):
            for axes, level in zip(row, levels, strict=True):
                at = checked.sel(key_class=name, level=level)
                foretold = at["removal_estimate"] * level
                drawn = axes.scatter(
                    foretold, at["rise"], c=layers, cmap="viridis", s=8, linewidths=0
                )
                _symmetric(axes, float(np.nanmedian(np.abs(at["rise"]))))
                axes.axline((0, 0), (1, 1), color=GRAY, linewidth=0.6, linestyle=(0, (4, 3)))
                low, high = (float(at["r_interval"].sel(bound=b)) for b in ("low", "high"))
                axes.text(
                    0.98,
                    0.03,
                    f"r = {float(at['r']):.2f} ({low:.2f} to {high:.2f})\n"
                    f"ρ = {float(at['rho']):.2f}",
                    transform=axes.transAxes,
                    ha="right",
                    va="bottom",
                    fontsize=6.5,
                )
            row[0].set_ylabel(f"{'first token' if name == 'first' else name}\nRise of the loss")
        for axes, level in zip(panels[0], levels, strict=True):
            axes.set_title(f"{level:.0%} removed")
        for axes in panels[-1]:
            axes.set_xlabel("Foretold by the gradient (nats)")
        figure.colorbar(drawn, ax=panels, label="Layer", shrink=0.6)
        about = checked.attrs
        corpus = short_name(str(about["corpus"]))
        what = f"{about['heads']} heads · {about['documents']} documents"
        caption(
            figure,
            f"{about['model']} · {corpus} · {what} · loss {float(checked['loss']):.2f} nats",
        )
    return figure


def _symmetric(axes: Axes, middle: float) -> None:
    """Scale both axes alike, linear near 0 and logarithmic beyond: few heads matter much."""
    near = 10.0 ** np.floor(np.log10(max(middle, 1e-9)))
    values = np.abs([*axes.get_xlim(), *axes.get_ylim()]).max()
    for name in ("x", "y"):
        getattr(axes, f"set_{name}scale")("symlog", linthresh=near, linscale=0.5)
        getattr(axes, f"set_{name}lim")(-values, values)
        axis = getattr(axes, f"{name}axis")
        top = 10.0 ** np.floor(np.log10(values))
        axis.set_ticks([-top, 0, top])
        axis.set_minor_locator(NullLocator())
