"""The methods of a trace that need rooms above `results`: the explorer, its page, metrics."""

# mypy: disable-error-code="misc"
# `self` is of the one class that inherits the methods, which mypy cannot know.

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from headscope.batch import NullKeys
    from headscope.measuring.contract import Metric
    from headscope.measuring.labels import Tagset
    from headscope.page.widget import Explorer
    from headscope.results.result import Result
    from headscope.results.trace import Trace
    from headscope.run.options import Over
    from headscope.text.document import Document


class TraceMethods:
    """What one does with a trace: look at it, save it as a page, measure it."""

    __slots__ = ()

    def explore(
        self: Trace,
        other: Trace | None = None,
        *,
        view: Literal["all", "model", "head", "neuron"] = "all",
        block: str | None = None,
        layer: int | None = None,
        heads: int | Sequence[int] | None = None,
        queries: int | Sequence[int] | None = None,
        neurons: bool | Sequence[int] = True,
        titles: Sequence[str] | None = None,
        theme: str = "auto",
        height: int = 680,
    ) -> Explorer:
        """Look at every head in a notebook: model, head and neuron view of one selection.

        The widget's `selection` says where the reader is, and can be set; `.save("page.html")`
        writes the same as one file that opens without a network.

        Args:
            other: a second trace to compare with, side by side and as a difference.
            view: `model` shows all heads small, `head` the heads of one layer, `neuron` the
                queries and keys of one head; `all` the three together.
            block: `self`, or `encoder`, `decoder`, `cross` of an encoder-decoder.
            layer: the layer to open.
            heads: the head or heads to open.
            queries: positions of tokens to pin.
            neurons: whether queries, keys and values go along (two bytes a number), or the
                layers whose do.
            titles: what to call each trace; its text by default.
            theme: `auto` (as the notebook), `light` or `dark`.
            height: in pixels.

        Raises:
            MissingExtra: anywidget is not installed.
            InputError: the trace does not have what is named, or its weights are not attention.
        """
        from headscope.page.explorer import explore

        return explore(
            self,
            other,
            view=view,
            block=block,
            layer=layer,
            heads=heads,
            queries=queries,
            neurons=neurons,
            titles=titles,
            theme=theme,
            height=height,
        )

    def save_page(
        self: Trace,
        path: str | os.PathLike[str],
        other: Trace | None = None,
        *,
        view: Literal["all", "model", "head", "neuron"] = "all",
        block: str | None = None,
        layer: int | None = None,
        heads: int | Sequence[int] | None = None,
        queries: int | Sequence[int] | None = None,
        neurons: bool | Sequence[int] = True,
        titles: Sequence[str] | None = None,
        theme: str = "auto",
    ) -> None:
        """Write the explorer as one HTML file that opens without a network.

        Args:
            path: the file to write; it appears whole or not at all.
            other: a second trace to compare with.
            view: where to open, as in `explore`.
            block: as in `explore`.
            layer: as in `explore`.
            heads: as in `explore`.
            queries: as in `explore`.
            neurons: whether queries, keys and values go along, or the layers whose do.
            titles: what to call each trace; its text by default.
            theme: `auto` (as the reader's system), `light` or `dark`.
        """
        from headscope.page.save_page import save_page
        from headscope.page.selection import make_selection

        selection = make_selection(
            self, view=view, block=block, layer=layer, heads=heads, queries=queries, theme=theme
        )
        traces = [self] if other is None else [self, other]
        save_page(traces, path, neurons=neurons, titles=titles, selection=selection)

    def measure(
        self: Trace,
        metrics: str | Metric | Iterable[str | Metric] = "all",
        *,
        document: Document | None = None,
        tagset: Tagset = "universal",
        null_keys: NullKeys = "auto",
        over: Over = "attention",
    ) -> Result:
        """The metrics of this one input: what `analyze` gives for a corpus of one document.

        Works for a trace of a model and for attention computed elsewhere
        (`Trace.from_arrays`). There are no intervals: one document says nothing of others.

        Args:
            metrics: "all" for those that the annotations allow, names, or metrics.
            document: the annotated document that was traced, for tags and dependencies.
            tagset: universal tags or the language's own.
            null_keys: which keys are null attention.
            over: `attention`, or `norm` for attention times the length of what it fetches, of a
                trace made with `norms=True`.
        """
        from headscope.run.measure import measure

        return measure(
            self, metrics, document=document, tagset=tagset, null_keys=null_keys, over=over
        )

    def by_norm(self: Trace) -> Trace:
        """The trace with what each weight moves in place of the weight: a[i,j] · ‖v_j W_O^h‖, rows
        divided by their sums (Kobayashi et al. 2020). Views and metrics take it as any trace.

        Raises:
            InputError: the trace was made without `norms=True`.
        """
        from headscope.results.norm_weighted import weigh_trace

        return weigh_trace(self)
