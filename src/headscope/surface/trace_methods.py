"""The methods of a trace that need rooms above `results`: the explorer, its page, metrics."""

# mypy: disable-error-code="misc"
# `self` is of the one class that inherits the methods, which mypy cannot know.

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    import xarray as xr

    from headscope.batch import NullKeys
    from headscope.measuring.contract import Metric
    from headscope.measuring.labels import Tagset
    from headscope.page.payload import Step
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
        neurons: bool | Sequence[int] | None = None,
        titles: Sequence[str] | None = None,
        theme: str = "auto",
        height: int = 680,
        over: Over = "attention",
        evidence: Result | Iterable[Result] | None = None,
    ) -> Explorer:
        """Look at every head in a notebook: the sentence, all heads, one head, its effect.

        The widget's `selection` says where the reader is, and can be set; `.save("page.html")`
        writes the same as one file that opens without a network. While the kernel runs, the page
        can switch heads off, measure what each does, and say why it looked where it did; a
        notebook opened without a kernel shows the offline page.

        Args:
            other: a second trace to compare with, side by side.
            view: `head` opens the lines of one head, `neuron` its queries and keys.
            block: `self`, or `encoder`, `decoder`, `cross` of an encoder-decoder.
            layer: the layer to open; by default that of the head that shows most.
            heads: the head to open; of several the first.
            queries: position of the token to pin; of several the first.
            neurons: whether queries, keys and values go along (two bytes a number), or the
                layers whose do; by default those of the opening head. The kernel gives the rest.
            titles: what to call each trace; its text, or what was changed, by default.
            theme: `auto` (as the notebook), `light` or `dark`.
            height: in pixels.
            over: `attention`, or `norm` for attention times the length of what it fetches, of a
                trace made with `norms=True`.
            evidence: what a corpus run measured of the model, for names and cards of its heads.

        Raises:
            MissingExtra: anywidget is not installed.
            InputError: the trace does not have what is named, or its weights are not attention.
        """
        from headscope.page.explorer import explore
        from headscope.page.selection import make_selection
        from headscope.surface.live_replies import replies_for

        traces = _shown(self, other, over)
        selection = make_selection(
            traces[0],
            view=view,
            block=block,
            layer=layer,
            heads=heads,
            queries=queries,
            theme=theme,
        )
        return explore(
            replies_for(traces),
            selection=selection,
            neurons=neurons,
            titles=titles,
            evidence=evidence,
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
        neurons: bool | Sequence[int] | None = None,
        titles: Sequence[str] | None = None,
        theme: str = "auto",
        story: Sequence[Step] = (),
        evidence: Result | Iterable[Result] | None = None,
        effects: bool = False,
        hidden: bool = False,
        over: Over = "attention",
    ) -> None:
        """Write the explorer as one HTML file that opens without a network.

            trace.save_page("page.html", effects=True, story=[
                ("This head rests.", {"layer": 3, "head": 0}),
                ("This one reads back from the pronoun.", {"layer": 9, "head": 3, "word": 8}),
            ])

        `headscope.save_page` puts several traces into one page.

        Args:
            path: the file to write; it appears whole or not at all.
            other: a second trace to compare with.
            view: where to open, as in `explore`.
            block: as in `explore`.
            layer: as in `explore`.
            heads: as in `explore`.
            queries: as in `explore`.
            neurons: whether queries, keys and values go along, or the layers whose do; by default
                those of the opening head and of the story.
            titles: what to call each trace; its text, or what was changed, by default.
            theme: `auto` (as the reader's system), `light` or `dark`.
            story: captions, each with the selection it is about: `layer`, `head`, `block`, `word`,
                `key`, `tab` (lines, matrix, neurons, evidence, effect), `color`, `role`, `off`
                and so on; or a URL fragment copied from a page.
            evidence: what a corpus run measured of the model, for names and cards of its heads.
            effects: store what each head does to the prediction, which takes the model (see
                `with_effects`).
            hidden: whether hidden states go along with queries, keys and values.
            over: `attention`, or `norm`, as in `explore`.
        """
        from headscope.page.save_page import save_page
        from headscope.page.selection import make_selection

        traces = _shown(self, other, over)
        selection = make_selection(
            traces[0],
            view=view,
            block=block,
            layer=layer,
            heads=heads,
            queries=queries,
            theme=theme,
        )
        save_page(
            [traces],
            path,
            neurons=neurons,
            titles=titles,
            selection=selection,
            story=story,
            evidence=evidence,
            effects=effects,
            hidden=hidden,
        )

    def roles(self: Trace, block: str | None = None) -> xr.Dataset:
        """What each head does with this text, in one word: a table over layer and head.

        A head has a role if the queries that could show it pay at least half of their attention
        to it, at least twice what even attention would, and there are three or more of them. The
        roles: `previous`, `next` and `same` token; an `equal` word elsewhere; the token `after`
        an earlier equal one; `broad`; and the resting places `first` token, `special` tokens and
        `punctuation`. It says what a head does here; whether it always does, a corpus says
        (`headscope.analyze`).

        Args:
            block: `encoder`, `decoder` or `cross` of an encoder-decoder; the main one by default.

        Returns:
            `role` ("" for none), its `share` of attention, and the `queries` that could show it.
            `.to_dataframe()` makes rows of it.
        """
        from headscope.heads.roles import name_roles

        return name_roles(self.main if block is None else self._block(block))

    def with_effects(self: Trace, position: int | None = None) -> Trace:
        """The trace with what each head does to a prediction beside it, as `trace.effects`.

        Each head is switched off alone (its output is zero), and the log-probabilities of the ten
        likeliest answers are kept; of a plain encoder, the vector of the text. It takes the model,
        so the trace must come from `model.trace`, not from a file.

        Args:
            position: of the prediction; the last token, or mask, by default.
        """
        from headscope.surface.model_methods import with_effects

        return with_effects(self, position)

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


def _shown(trace: Trace, other: Trace | None, over: Over) -> list[Trace]:
    """What is looked at, one trace or two, over attention or norms."""
    from headscope.errors import UnknownName
    from headscope.page.save_page import need_trace
    from headscope.results.norm_weighted import OVER

    if over not in OVER:
        raise UnknownName.of("over", over, OVER)
    traces = [need_trace(one) for one in (trace, other) if one is not None]
    return traces if over == "attention" else [one.by_norm() for one in traces]
