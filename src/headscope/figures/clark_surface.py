"""Clark et al.'s Figures 1, 2 and 4 from a result: a point for every head, a line for its layer."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headscope.errors import InputError
from headscope.figures.style import GRAY, PALETTE, caption, new_figure, styled, ticks
from headscope.results.result import Result
from headscope.text.token_classes import FIRST, PUNCTUATION, REST, is_repeated

LAYER = "Layer"


def clark_figure_1(result: Result) -> Figure:
    """Attention to the previous, the current and the next token, by head (section 3.1).

    Clark et al.'s Figure 1 shows four heads as examples; this is the plot of all heads that
    their notebook has, with next and previous the right way round. Causal attention never
    sees the next token: it has no panel there.
    """
    shares = _variable(result, "offset_share")
    titles = {-1: "previous token", 0: "current token", 1: "next token"}
    if not (shares.sel(offset=1) > 0).any():
        del titles[1]
    with styled():
        figure = new_figure(2.2 * len(titles), 2.4)
        panels = figure.subplots(1, len(titles), sharey=True)
        for axes, color, (offset, title) in zip(panels, PALETTE, titles.items(), strict=False):
            values = shares.sel(offset=offset)
            _points(axes, values, color)
            above = int((values > 0.5).sum())
            axes.axhline(0.5, color=GRAY, linewidth=0.6, linestyle=(0, (4, 3)))
            noun = "head" if above == 1 else "heads"
            axes.set_title(title.capitalize())
            axes.text(
                0.98,
                0.97,
                f"{above} {noun} above 0.5",
                transform=axes.transAxes,
                ha="right",
                va="top",
                fontsize=7,
                color=GRAY,
            )
            axes.set_ylim(-0.02, 1.02)
            axes.set_xlabel(LAYER)
        panels[0].set_ylabel("Share of attention")
        _caption(figure, result)
    return figure


def clark_figure_2(result: Result) -> Figure:
    """Attention to special tokens and punctuation; and to separators, from separators and
    from the rest (section 3.2). Models without separators have the first panel alone.
    """
    shares = _variable(result, "class_share")
    names = [str(n) for n in shares["key_class"].values if n not in (REST, PUNCTUATION)]
    if is_repeated(shares):  # the first token is a special token: one line says it
        names.remove(FIRST)
    has_separators = bool(np.isfinite(result["sep_from_sep"]).any())
    with styled():
        figure = new_figure(6.6 if has_separators else 4.8, 2.6)
        panels = np.atleast_1d(figure.subplots(1, 1 + has_separators, sharey=True))
        for number, name in enumerate(names):
            shown = "first token" if name == "first" else name
            _points(panels[0], shares.sel(key_class=name), PALETTE[number], shown, _shift(number))
        panels[0].set_title("Attention to …")
        if has_separators:
            for number, (name, label) in enumerate(
                (
                    ("sep_from_sep", "separators → separators"),
                    ("sep_from_other", "other → separators"),
                )
            ):
                _points(panels[1], result[name], PALETTE[number + 3], label, _shift(number))
            panels[1].set_title("Attention to separators from …")
        for axes in panels:
            axes.set_ylim(-0.02, 1.02)
            axes.set_xlabel(LAYER)
            axes.legend(loc="best")
        panels[0].set_ylabel("Share of attention")
        _caption(figure, result)
    return figure


def clark_figure_4(result: Result) -> Figure:
    """Entropy of every head's rows, from all tokens and from the first one (section 3.3).

    In causal attention the first token sees only itself: one panel says it all.
    """
    entropy = _variable(result, "row_entropy")
    uniform = float(result["uniform_entropy"])
    with styled():
        has_first = bool((result["first_entropy"] > 0).any())
        figure = new_figure(6.6 if has_first else 4.8, 2.5)
        panels = np.atleast_1d(figure.subplots(1, 1 + has_first, sharey=True))
        _points(panels[0], entropy, PALETTE[0])
        panels[0].set_title("From all tokens")
        if has_first:
            _points(panels[1], result["first_entropy"], PALETTE[1])
            panels[1].set_title("From the first token alone")
        for axes in panels:
            axes.set_xlabel(LAYER)
            axes.set_ylim(-0.05, 1.1 * max(uniform, float(entropy.max())))
        panels[0].axhline(uniform, color=GRAY, linewidth=0.8, linestyle=(0, (4, 3)))
        panels[0].annotate(
            "uniform attention",
            (1, uniform),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="right",
            fontsize=7,
            color=GRAY,
        )
        panels[0].set_ylabel("Entropy (nats)")
        _caption(figure, result)
    return figure


def _points(
    axes: Axes, values: xr.DataArray, color: str, label: str | None = None, shift: float = 0.0
) -> None:
    """Every head a point, the mean of a layer a line."""
    layers = values["layer"].values.astype(float)
    x = np.repeat(layers + shift, values.sizes["head"])
    y = values.transpose("layer", "head").values.ravel()
    axes.scatter(x, y, s=6, color=color, alpha=0.45, linewidths=0)
    axes.plot(layers, values.mean("head"), color=color, linewidth=1.3, label=label)
    axes.set_xticks([layers[i] for i in ticks(len(layers))])


def _shift(number: int) -> float:
    return 0.12 * (number - 1)


def _variable(result: Result, name: str) -> xr.DataArray:
    if name not in result:
        raise InputError(
            f"This figure shows {name}, which the result does not have. Run headscope.analyze "
            'with it (it is among "all").'
        )
    return result[name]


def _caption(figure: Figure, result: Result) -> None:
    text = f"{result.title} · {result.n_documents:,} documents"
    caption(figure, text)
