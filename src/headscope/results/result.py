"""A result: what a run over a corpus measured, with where it came from.

Values are xarray datasets with named axes, one per attention of the model (a model with
one stack has one). The states they were computed from are kept beside them, so that
results can be added and compared later. No torch, no model.

Variables of a result as one pandas table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from headscope.arguments import place_of, whole_number
from headscope.attention import key_stack, query_stack
from headscope.errors import InputError, UnknownName
from headscope.notebook import facts_table
from headscope.results.display import CURE, is_shown

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from pathlib import Path

    import pandas as pd
    from matplotlib.figure import Figure

    from headscope.attention import BlockName
    from headscope.heads.cards import HeadCard
    from headscope.heads.head_map import HeadMap
    from headscope.heads.significant import SignificantHeads
    from headscope.model.model import Model
    from headscope.probes.tables import BiasTable, ProbeTable
    from headscope.results.probe import Probe, ProbeExamples
    from headscope.text.corpus import Corpus
    from headscope.text.readers.read import Readable


def short_name(path: str) -> str:
    """A file or folder without the folders it lies in."""
    return path.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class MeasuredDocument:
    """A document that is an exemplar of some head."""

    id: str
    tokens: Mapping[str, tuple[str, ...]]
    """Its tokens in each stack, as people read them."""


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A document in which a head pays one of its highest weights, and the arc."""

    weight: float
    document: MeasuredDocument
    query: int
    key: int
    query_tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]

    def __str__(self) -> str:
        arc = f"{self.query_tokens[self.query].strip()} → {self.key_tokens[self.key].strip()}"
        between = "" if any(token.startswith(" ") for token in self.query_tokens) else " "
        return f"{self.weight:.3f} {arc}: {between.join(self.query_tokens).strip()}"


@dataclass(frozen=True, eq=False)
class Result:
    """What was measured. `result["distance"]` is a DataArray over layer and head.

    Attributes:
        blocks: the values, a dataset for each attention of the model.
        states: the sums they were computed from: by block and metric.
        provenance: model, corpus, plan, versions, counts, what was left out.
        documents: the exemplars' documents by their number in the corpus.
        groups: the same values for each group of documents (genres), where the run had any.
    """

    blocks: Mapping[str, xr.Dataset]
    states: Mapping[str, Mapping[str, xr.Dataset]]
    provenance: Mapping[str, Any]
    documents: Mapping[int, MeasuredDocument] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, xr.Dataset]] = field(default_factory=dict)

    @property
    def dataset(self) -> xr.Dataset:
        """All values of the main attention (the only one, or the encoder's)."""
        return next(iter(self.blocks.values()))

    def __getitem__(self, name: str) -> xr.DataArray:
        if name not in self.dataset:
            raise UnknownName.of("variable", name, map(str, self.dataset.data_vars))
        return self.dataset[name]

    def __contains__(self, name: object) -> bool:
        return name in self.dataset

    def block(self, name: str) -> xr.Dataset:
        """The values of another attention: `encoder`, `decoder` or `cross`."""
        if name not in self.blocks:
            raise UnknownName.of("block", name, self.blocks)
        return self.blocks[name]

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.provenance["model"]["name"])

    @property
    def corpus_name(self) -> str:
        """The corpus in few words: its files without folders, and the group, if it is one."""
        name = str(self.provenance.get("corpus", {}).get("name", "a corpus"))
        name = " + ".join(short_name(part) for part in name.split(" + "))
        group = self.provenance.get("group")
        return f"{name}, {group}" if group else name

    @property
    def over(self) -> str:
        """What was measured: `attention`, or `norm` for attention times what it fetches."""
        return str(self.provenance.get("settings", {}).get("over", "attention"))

    @property
    def title(self) -> str:
        """The model and the corpus, for figures and tables; and that attention was weighted by
        norms, where it was.
        """
        return f"{self.model} · {self.corpus_name}" + " · weighted by norms" * (self.over == "norm")

    @property
    def n_documents(self) -> int:
        """How many documents were measured."""
        return int(self.dataset["tokens_per_document_count"])

    def exemplars(self, layer: int, head: int, block: str | None = None) -> list[Exemplar]:
        """The documents in which a head pays its highest weights, highest first."""
        name = block or next(iter(self.blocks))
        data = self.block(name)
        if "exemplar_weight" not in data:
            raise InputError("This result has no exemplars: the run did not measure them.")
        # Bare variables: `data.sel` would cut all of the result, and `data[…]` looks up labels.
        bare = data.variables
        place = [
            place_of(what, value, bare[what].values.tolist())
            for what, value in (("layer", layer), ("head", head))
        ]
        weights, documents, queries, keys = (
            bare[f"exemplar_{array}"].transpose("layer", "head", "rank").values[tuple(place)]
            for array in ("weight", "document", "query", "key")
        )
        exemplars = []
        for weight, number, query, key in zip(weights, documents, queries, keys, strict=True):
            if number < 0:
                break
            document = self.documents[int(number)]
            exemplars.append(
                Exemplar(
                    float(weight),
                    document,
                    int(query),
                    int(key),
                    document.tokens[query_stack(name, document.tokens)],
                    document.tokens[key_stack(name, document.tokens)],
                )
            )
        return exemplars

    def top(
        self, name: str, n: int = 10, *, block: str | None = None, **labels: str | int
    ) -> list[tuple[int, int, float]]:
        """The heads with the highest values of a variable: layer, head, value.

        Args:
            name: a variable over layer and head.
            n: how many heads.
            block: another attention of the model: `decoder`.
            labels: one for each other axis: `result.top("pos_to", tag="NOUN")`.
        """
        n = whole_number("n", n)
        data = self.dataset if block is None else self.block(block)
        if name not in data:
            raise UnknownName.of("variable", name, map(str, data.data_vars))
        values = data[name]
        axes = [str(dim) for dim in values.dims if dim not in ("layer", "head")]
        for axis, label in labels.items():
            if axis not in axes:
                raise UnknownName.of(f"axis of {name}", axis, axes)
            known = values[axis].values.tolist()
            if label not in known:
                raise UnknownName.of(axis, label, map(str, known))
        values = values.sel(labels)
        if set(values.dims) != {"layer", "head"}:
            others = [dim for dim in values.dims if dim not in ("layer", "head")]
            first = others[0]
            labels_of = ", ".join(map(repr, values[first].values.tolist()[:4]))
            raise InputError(
                f"{name} also has the axes {', '.join(map(str, others))}: give a label of each, "
                f"such as one of {labels_of} for {first}."
            )
        flat = values.stack(at=("layer", "head")).dropna("at")
        order = np.argsort(-flat.values, kind="stable")[:n]
        chosen = flat.isel(at=order)
        return [
            (int(layer), int(head), float(value))
            for layer, head, value in zip(
                chosen["layer"].values, chosen["head"].values, chosen.values, strict=True
            )
        ]

    def to_dataframe(
        self, *names: str, block: str | None = None, **labels: str | int
    ) -> pd.DataFrame:
        """Variables as a pandas table: a row for each head, a column for each variable.

        Axes besides layer and head (`tag`, `relation`) are further levels of the index. Where
        a variable has intervals, `…_low` and `…_high` stand beside it.

        Args:
            names: variables over the same axes; by default all that have one value per head.
            block: another attention of the model: `decoder`.
            labels: of further axes, which are then left out: `parent="either"`.

        Raises:
            UnknownName: there is no such variable, axis or label.
            InputError: a variable is a single number, or the variables differ in their axes.
        """
        return make_frame(self.dataset if block is None else self.block(block), names, labels)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one netCDF file, which `headscope.open` and xarray read."""
        from headscope.results.files import save_result

        save_result(self, path)

    @property
    def summary(self) -> str:
        """What was read: `2,001 documents (sentences), 25,148 tokens, 3 cut to 512 tokens`.

        It also names the sums that one document dominates.
        """
        n, about = self.n_documents, self.provenance
        unit = str(about.get("corpus", {}).get("unit", ""))
        plural = unit.replace("document as given", "as given") + "s" * unit.isalpha()
        parts = [
            f"{n:,} document{'s' * (n != 1)}" + f" ({plural})" * (unit not in ("", "document"))
        ]
        counts = about.get("counts", {})
        if "tokens" in counts:
            parts.append(f"{counts['tokens']:,} tokens")
        if counts.get("truncated"):
            limit = about.get("settings", {}).get("max_tokens", "fewer")
            parts.append(f"{counts['truncated']:,} cut to {limit} tokens")
        if counts.get("failed"):
            parts.append(f"{counts['failed']:,} left out")
        return ", ".join(parts) + self._dominated

    @property
    def _dominated(self) -> str:
        """Which sums one document dominates, and what to do about it."""
        shares = {
            str(name).removesuffix("_n_eff"): float(array.attrs["largest_share"])
            for name, array in self.dataset.data_vars.items()
            if "largest_share" in array.attrs
        }
        if not shares:
            return ""
        named = ", ".join(list(shares)[:3]) + f" and {len(shares) - 3} more" * (len(shares) > 3)
        return (
            f"; one document holds {max(shares.values()):.0%} of {named}, and intervals say little "
            f"of others: {CURE}"
        )

    def __repr__(self) -> str:
        return (
            f"<Result of {self.model}: {self._size}; {self.summary}: {', '.join(self._measured)}>"
        )

    def _repr_html_(self) -> str:
        facts = [
            ("model", self.model),
            ("corpus", self.corpus_name),
            ("size", self._size),
            ("read", self.summary),
            ("groups", ", ".join(self.groups)),
            ("variables", ", ".join(self._measured)),
        ]
        return facts_table("Result", facts)

    @property
    def _size(self) -> str:
        sizes = self.dataset.sizes
        return f"{sizes.get('layer', 0)} layers × {sizes.get('head', 0)} heads"

    @property
    def _measured(self) -> list[str]:
        """The variables without those derived from them."""
        names = map(str, self.dataset.data_vars)
        derived = ("_interval", "_n_eff", "_count", "_by_layer", "_mean")
        return [name for name in names if not name.endswith(derived)]

    def group(self, name: str) -> Result:
        """The documents of one group (a genre) as a result of its own.

        Without the metrics whose states are not kept for each group: exemplars, divergences.
        """
        from headscope.run.merge import group_result

        return group_result(self, name)

    def compare(self, other: Result) -> xr.Dataset:
        """Differences, this result minus the other, with 95 % intervals and p values.

        Two models over one corpus, or two genres under one model (`result.group`). Variables
        are compared head by head where both models have the same layers and heads; their
        means over heads (`…_mean`) always. Results of the same documents are paired, and the
        attribute `comparison` says so. `…_p` is the two-sided p value of each difference;
        `…_p_adjusted` is corrected for all heads of the variable (Benjamini & Hochberg): read
        this one in a list. Variability is left out where the sides kept different numbers of
        documents: fewer make it smaller. Metrics of your own are left out, with a warning, where
        their classes are not registered (`headscope.register_metric`).

        Args:
            other: the result to compare with.
        """
        from headscope.run.compare import compare

        return compare(self, other)

    def significant(
        self,
        name: str,
        *,
        against: float | str | Result = "mean",
        level: float = 0.05,
        block: str | None = None,
        **labels: str | int,
    ) -> SignificantHeads:
        """The heads whose value is above something, corrected for looking at all heads.

        One p value for each head, from the same standard errors as its interval, corrected by
        Benjamini & Hochberg: of the heads listed, a share of at most `level` is expected to be
        there by chance. Where few documents skew its error, p is more careful than the interval.

        Args:
            name: a variable over layer and head.
            against: a number; the name of another variable of this result (`dep_baseline`);
                `mean`, the mean over heads; or another result, from which heads may differ
                either way.
            level: of the corrected p values.
            block: another attention of the model: `decoder`.
            labels: one for each other axis: `result.significant("pos_to", tag="NOUN")`.
        """
        from headscope.heads.significant import significant_heads

        return significant_heads(self, name, against=against, level=level, block=block, **labels)

    def figure(self, name: str, **options: object) -> Figure:
        """One figure of the papers, or of ours, as matplotlib draws it.

        Save it with `figure.savefig(path)`.

        Args:
            name: `vb-5` … `vb-12`, `vb-a1` and `vb-a2` are those of Vig & Belinkov (2019),
                `vb-exemplars` their Tables 1 to 3 for one head; `clark-1` to `clark-4` and
                `clark-6` those of Clark et al. (2019); `genres` sets groups side by side. Or a
                variable over layer and head, also of a metric of your own: a heat map.
            options: `layer`, `head`, `n` and `block` for `vb-exemplars`; `probes`, `effects`,
                `thresholds`, `seed` and `starts` of `map_heads` for `clark-6`.

        Raises:
            UnknownName: there is no such figure.
            InputError: the result lacks what it shows, or an option is missing or unknown.
        """
        from headscope.figures.papers import draw

        return draw(self, name, **options)

    def save_figures(
        self,
        folder: str | os.PathLike[str],
        *,
        figures: Iterable[str] | None = None,
        formats: Iterable[str] = ("svg", "pdf", "png"),
        exemplars: Iterable[tuple[int, int]] = (),
    ) -> list[Path]:
        """Write figures to files: all that the result allows, in SVG, PDF and PNG.

        Args:
            folder: where to; made if need be.
            figures: which, by their names.
            formats: file formats that matplotlib knows.
            exemplars: also `vb-exemplars` for each of these heads (layer, head).
        """
        from headscope.figures.papers import save_figures

        return save_figures(self, folder, figures=figures, formats=formats, exemplars=exemplars)

    def card(
        self,
        layer: int,
        head: int,
        *others: Result,
        heads: HeadMap | None = None,
        n_exemplars: int = 3,
    ) -> HeadCard:
        """Everything measured about one head, on one page.

        Args:
            layer: counted from 0.
            head: counted from 0.
            others: more results of the same model (`importance`, probes).
            heads: a map, for the nearest heads; without it they are taken from `js` if there.
            n_exemplars: how many of its highest weights to show.
        """
        from headscope.heads.cards import make_card

        return make_card([self, *others], layer, head, heads=heads, n_exemplars=n_exemplars)

    def table(
        self,
        heads: Result | Iterable[tuple[int, int]] | None = None,
        *,
        n: int = 5,
        block: str | None = None,
    ) -> ProbeTable | BiasTable:
        """A probe's result as a table.

        Of `probe_dependencies` and `probe_coreference`: the best head of each relation (Clark
        et al. 2019, Table 1) or kind of mention (Table 2). Of `probe_bias`: the heads that
        find antecedents, and how a stereotype moves them.

        Args:
            heads: for `probe_bias`: which heads to show, as (layer, head), or a result of
                `probe_coreference` with the same model, whose `n` best are shown. By default
                the `n` that find the antecedent most often in these sentences.
            n: how many heads, for `probe_bias`.
            block: another attention of the model: `decoder`.

        Raises:
            InputError: the result is not of a probe.
        """
        from headscope.probes.tables import table_of

        return table_of(self, heads, n=n, block=block)

    def examples(
        self,
        model: Model | str,
        corpus: Corpus | Readable,
        relation: str,
        *,
        layer: int | None = None,
        head: int | None = None,
        direction: str | None = None,
        right: int = 3,
        wrong: int = 3,
        max_words: int = 16,
        block: BlockName | None = None,
    ) -> ProbeExamples:
        """Sentences in which a head finds a relation, and some in which it does not.

        Of a result of `probe_dependencies`. `.figure()` draws them (Clark et al. 2019,
        Figure 5).

        Args:
            model: the model that was probed, or what `headscope.load` takes.
            corpus: parsed documents, or what `headscope.read` takes (then split into
                sentences).
            relation: as the table names it.
            layer: of the head; by default that of the relation's best head.
            head: likewise.
            direction: `dependent`: the dependent attends to its parent; `head`: the other
                way. By default that in which the best head is best.
            right: how many sentences in which the head is always right.
            wrong: how many in which it is not.
            max_words: longer sentences are passed over.
            block: which attention, in encoder-decoders.
        """
        from headscope.probes.probe_dependencies import examples_of

        return examples_of(
            self,
            model,
            corpus,
            relation,
            layer=layer,
            head=head,
            direction=direction,
            right=right,
            wrong=wrong,
            max_words=max_words,
            block=block,
        )

    def report(
        self,
        path: str | os.PathLike[str],
        *others: Result | Probe | str | os.PathLike[str],
        title: str | None = None,
        pages: Mapping[str, str] | None = None,
    ) -> Path:
        """Write a report: findings, figures and a card for every head in one HTML file.

        `headscope.report` says what is in it.

        Args:
            path: the file to write; it appears whole or not at all.
            others: more results, run folders or files of results, and trained probes.
            title: of the report; names the models by default.
            pages: addresses of explorer pages by the model's name.
        """
        from headscope.reporting.report import report

        return report([self, *others], path, title=title, pages=pages)

    def export(
        self,
        form: str,
        folder: str | os.PathLike[str],
        *,
        block: str | None = None,
    ) -> Path:
        """Write the result as files that another tool reads.

        `headvis` is the folder of HeadVis (Luger, Kamath et al. 2026), which Neuronpedia reads
        too: a point and a file per head. The run must have measured `head_samples`. HeadVis's
        own scores count the first token and have no intervals; what headscope measured is beside
        them as `headscope_…`, with `…_low` and `…_high`.

        Args:
            form: `headvis`.
            folder: where to; it appears whole or not at all, and replaces an earlier export.
            block: another attention of the model: `decoder`.

        Raises:
            UnknownName: there is no such form.
            InputError: the result has no `head_samples`, or the folder holds something else.
        """
        from headscope.errors import UnknownName
        from headscope.heads.headvis import export_headvis

        if form != "headvis":
            raise UnknownName.of("form", form, ["headvis"])
        return export_headvis(self, folder, block=block)


HEADS = ("layer", "head")
INTERVAL = "_interval"
BESIDE = (INTERVAL, "_n_eff")


def make_frame(
    data: xr.Dataset, names: Sequence[str], labels: Mapping[str, str | int]
) -> pd.DataFrame:
    """Variables over the same axes as columns; their axes, layer and head first, as the index."""
    import pandas as pd  # opening a result does not need it

    for axis, label in labels.items():
        if axis not in data.coords:
            raise UnknownName.of("axis", axis, map(str, data.coords))
        if label not in data[axis].values.tolist():
            raise UnknownName.of(axis, label, map(str, data[axis].values.tolist()))
    data = data.sel(labels)
    known = [str(name) for name in data.data_vars if not str(name).endswith(BESIDE)]
    for name in names:
        if name not in known:
            raise UnknownName.of("variable", name, known)
    chosen = list(names) or [
        name for name in known if set(data[name].dims) == set(HEADS) and is_shown(data[name])
    ]
    if not chosen:
        raise InputError("This result has no variable over layer and head alone: name one.")
    axes = {name: sorted(map(str, data[name].dims), key=_heads_first) for name in chosen}
    first = axes[chosen[0]]
    for name in chosen:
        if not axes[name]:
            raise InputError(f'{name} is a single number: float(result["{name}"]).')
        if set(axes[name]) != set(first):
            raise InputError(
                f"{chosen[0]} is over {', '.join(first)}, {name} over {', '.join(axes[name])}. "
                "Variables of one table have the same axes: name a label of the others, such as "
                'parent="either", or ask for one table each.'
            )
    columns = {}
    for name in chosen:
        columns[name] = _column(data[name], first)
        if f"{name}{INTERVAL}" in data:
            bounds = data[f"{name}{INTERVAL}"]
            for bound in ("low", "high"):
                columns[f"{name}_{bound}"] = _column(bounds.sel(bound=bound, drop=True), first)
    return pd.DataFrame(columns)


def _heads_first(axis: str) -> tuple[int, str]:
    return (HEADS.index(axis) if axis in HEADS else len(HEADS)), axis


def _column(values: xr.DataArray, axes: list[str]) -> pd.Series:
    """One value a row, indexed by the labels of the axes."""
    return values.transpose(*axes).to_series()
