"""Wires of a model as plain data: `Wires`, the result of `headscope.wires`."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from headscope.atomic import atomic_path
from headscope.errors import InputError
from headscope.notebook import facts_table
from headscope.results.display import aligned, latex_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from headscope.model.model import Model
    from headscope.text.pairs import Pairs

N_SHOWN = 20
"""Wires of a figure, a page or a printed table."""
COLUMNS = ("source", "reader", "share", "stability", "p", "estimate", "at", "by head")
LEFT = ("reader", "share", "at", "by head")
NUMBERS = ("share", "low", "high", "stability", "p", "estimate", "screened", "part")


@dataclass(frozen=True)
class Wire:
    """One exact wire, over all pairs.

    Attributes:
        source: name of what writes: `embedding`, `L16 H0`, `L3 MLP`.
        reader: name of what reads: `q of L17 H4`, `k of L17 H3-5`, `L3 MLP`, `logits`.
        by: `q`, `k`, `v`, `mlp` or `logits`.
        layer: layer of the reader.
        share: share of the gap. Above 0 the wire increases the logit difference.
        low: lower bound of the 95 % interval over templates; NaN with fewer than four.
        high: upper bound.
        stability: share of resamples of templates in which the wire is among the chosen.
        p: p value on templates that did not choose the wire, corrected by Holm; NaN without.
        estimate: the share by EAP-IG.
        screened: the share by the screen.
        n_pairs: number of pairs.
        n_templates: number of templates.
        at: position where the wire is read in the shown pair; −1 if not measured.
        part: part of the effect in that pair that this position has.
        by_head: share through each head of a group; empty for single heads.
    """

    source: str
    reader: str
    by: str
    layer: int
    share: float
    low: float
    high: float
    stability: float
    p: float
    estimate: float
    screened: float
    n_pairs: int
    n_templates: int
    at: int
    part: float
    by_head: Mapping[str, float]

    @property
    def largest(self) -> float:
        """Largest size of the share or of a head's share: what wires are ranked by."""
        return max(abs(self.share), *(abs(value) for value in self.by_head.values()), 0.0)


@dataclass(frozen=True, eq=False)
class Wires:
    """Wires between heads, MLPs, the embedding and the logits on contrast pairs.

    Attributes:
        data: estimates of all wires by template (`template source reader`), exact effects of the
            chosen ones (`wire pair`), and the table's columns over `wire`.
        about: model, pairs, templates, options and versions.
    """

    data: xr.Dataset
    about: Mapping[str, Any]
    model: Model | None = field(default=None, repr=False)

    @cached_property
    def table(self) -> tuple[Wire, ...]:
        """Exact wires, the largest first."""
        data = self.data
        names = (data["source"].values, data["reader"].values)
        rows = []
        for i in range(data.sizes.get("wire", 0)):
            row = data.isel(wire=i)
            source, reader = int(row["wire_source"]), int(row["wire_reader"])
            heads = [int(h) for h in json.loads(str(data["reader_heads"].values[reader]))]
            shares = row["share_by_head"].values
            by_head = {f"H{h}": float(x) for h, x in zip(heads, shares, strict=False)}
            numbers = {name: float(row[name]) for name in NUMBERS}
            rows.append(
                Wire(
                    source=str(names[0][source]), reader=str(names[1][reader]),
                    by=str(data["reader_kind"].values[reader]),
                    layer=int(data["reader_layer"].values[reader]),
                    n_pairs=self.n_pairs, n_templates=self.n_templates, at=int(row["at"]),
                    by_head=by_head if len(heads) > 1 else {}, **numbers,
                )
            )  # fmt: skip
        return tuple(sorted(rows, key=lambda wire: -wire.largest))

    @property
    def n_pairs(self) -> int:
        """Number of pairs."""
        return int(self.data.sizes["pair"])

    @property
    def n_templates(self) -> int:
        """Number of templates."""
        return int(self.data.sizes["template"])

    @property
    def holds(self) -> str:
        """Statement of what the numbers are about."""
        return str(self.about["holds"])

    @property
    def n_wires(self) -> int:
        """Number of all wires of the model."""
        return int(self.data["exists"].sum())

    def to_dataframe(self) -> pd.DataFrame:
        """Return the table as a data frame."""
        import pandas as pd

        rows = [{**vars(wire), "by_head": dict(wire.by_head)} for wire in self.table]
        return pd.DataFrame(rows, columns=list(Wire.__annotations__))

    def to_latex(self, n: int = N_SHOWN) -> str:
        """Return a LaTeX table (package booktabs) of the `n` largest wires."""
        rows = [self._cells(wire) for wire in self.table[:n]]
        has_p = any(math.isfinite(wire.p) for wire in self.table)
        details = [
            f"{self.about['model']}: wires on {self.about['pairs']}, as shares of the gap in "
            f"{self.about['number']}",
            f"n = {self.holds}",
            f"{len(self.table)} of {self.n_wires:,} wires were run",
            "95 % intervals" * (self.n_templates >= 4),
            f"* p < 0.05 on templates that did not choose the wire, Holm over "
            f"{self.about['exact']}" * has_p,
        ]
        return latex_table(COLUMNS, rows, "; ".join(filter(None, details)) + ".", LEFT)

    def _cells(self, wire: Wire) -> list[str]:
        at = "" if wire.at < 0 else f"{self.tokens(0)[wire.at].strip()} ({wire.part:.0%})"
        split = " ".join(f"{name} {value:+.2f}" for name, value in wire.by_head.items())
        share = f"{wire.share:+.3f}"
        if math.isfinite(wire.low):
            share += f" [{wire.low:+.3f}, {wire.high:+.3f}]"
        share = share.replace("-", "−") + "*" * (wire.p < 0.05)
        numbers = [
            "" if math.isnan(x) else f"{x:{form}}".replace("-", "−")
            for x, form in ((wire.stability, ".2f"), (wire.p, ".2g"), (wire.estimate, "+.3f"))
        ]
        return [wire.source, wire.reader, share, *numbers, at, split.replace("-", "−")]

    def tokens(self, side: int) -> list[str]:
        """Return the tokens of the shown pair's first (0) or second (1) text."""
        return list(self.about["shown"]["tokens"][side])

    # Circuits.

    def scores(self, templates: Sequence[int] | None = None) -> np.ndarray:
        """Return `source reader`: share of the gap by EAP-IG, by exact runs where there are any.

        `templates` are numbers of the templates to use; all by default.
        """
        data = self.data
        chosen = list(range(self.n_templates)) if templates is None else list(templates)
        is_chosen = np.isin(data["pair_template"].values, chosen)
        gaps = data["gap"].values[is_chosen]
        scores = data["integrated"].values[chosen].sum(0, dtype=np.float64)
        exact = data["exact"].values[:, is_chosen]
        closed = -(np.sign(gaps) * exact).sum(1)
        scores[data["wire_source"].values, data["wire_reader"].values] = closed
        return np.where(data["exists"].values, scores / np.abs(gaps).sum(), 0.0)

    def circuit(
        self,
        k: float,
        *,
        templates: Sequence[int] | None = None,
        is_absolute: bool = True,
        keeps_embedding: bool = True,
    ) -> np.ndarray:
        """Return `source reader`: True for the k wires with the largest scores.

        Args:
            k: number of wires; a float of at most 1.0 is a share of all wires.
            templates: templates whose pairs rank the wires; all by default.
            is_absolute: rank by size; False ranks by the share itself.
            keeps_embedding: keep all wires of the embedding as well. Without them a chain breaks
                at its start.
        """
        exists = self.data["exists"].values.astype(bool)
        if not 0 <= k <= self.n_wires:  # nor is NaN
            raise InputError(f"k={k!r} is out of range: the model has {self.n_wires:,} wires.")
        n = round(k * self.n_wires) if isinstance(k, float) and k <= 1 else int(k)
        scores = self.scores(templates)
        ranked = np.where(exists, np.abs(scores) if is_absolute else scores, -np.inf).ravel()
        flat = np.zeros(exists.size, dtype=bool)
        flat[np.argsort(-ranked, kind="stable")[:n]] = True
        kept = flat.reshape(exists.shape)
        if keeps_embedding:
            kept[0] = True
        return np.asarray(kept & exists)

    def curve(
        self,
        model: Model | str | None = None,
        pairs: Pairs | None = None,
        *,
        n_pairs: int = 8,
        is_absolute: bool = True,
        keeps_embedding: bool = True,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Return the faithfulness of circuits of ten sizes on held-out pairs.

        f(k) = (m(circuit) − m′)/(m − m′), means over pairs before the ratio. Wires are ranked on
        even templates and run on odd ones. CPR = ∫ f dk and CMD = ∫ |1 − f| dk, trapezoids from
        k = .001 to 1 (Mueller et al. 2025, MIB), are attributes.

        Args:
            model: the model; by default the one that was measured.
            pairs: held-out pairs; by default pairs of odd templates.
            n_pairs: at most this number of pairs.
            is_absolute: rank by size.
            keeps_embedding: keep all wires of the embedding in every circuit.
            progress: show progress; by default on a terminal.

        Returns:
            `faithfulness` and `wires` over `k`.
        """
        from headscope.causal.wires import measure_curve

        chosen = self.model if model is None else model
        if chosen is None:
            raise InputError("These wires were opened from a file: give the model, curve(model).")
        return measure_curve(
            self, chosen, pairs, n_pairs=n_pairs, is_absolute=is_absolute,
            keeps_embedding=keeps_embedding, progress=progress,
        )  # fmt: skip

    # Outputs.

    def figure(self, n: int = N_SHOWN) -> Figure:
        """Draw the n largest wires: shares with intervals, and stability beside them."""
        from headscope.figures.table_charts import wires_figure

        return wires_figure(self, n)

    def to_page(self, n: int = N_SHOWN, curve: xr.Dataset | None = None) -> dict[str, Any]:
        """Return plain data for a page: both texts, the n largest wires, all pairs, the curve.

        Wires have the fields of `Wire`, with null for NaN, the numbers of the source's and
        reader's layer and heads, and their share in each pair (`values`, whose mean is `share`).
        `changed` are the positions whose tokens differ.
        """
        data = self.data
        sources = {str(name): i for i, name in enumerate(data["source"].values)}
        readers = {str(name): i for i, name in enumerate(data["reader"].values)}
        runs = zip(data["wire_source"].values, data["wire_reader"].values, strict=True)
        numbers = {(int(s), int(r)): i for i, (s, r) in enumerate(runs)}
        gaps = data["gap"].values
        shares = -np.sign(gaps) * data["exact"].values / np.abs(gaps).mean()
        wires = []
        for wire in self.table[:n]:
            source, reader = sources[wire.source], readers[wire.reader]
            row = {name: _plain(value) for name, value in vars(wire).items() if name != "by_head"}
            row["by_head"] = {name: _plain(value) for name, value in wire.by_head.items()}
            row["source_layer"] = int(data["source_layer"].values[source])
            row["source_head"] = int(data["source_head"].values[source])
            row["reader_heads"] = json.loads(str(data["reader_heads"].values[reader]))
            own = shares[numbers[source, reader]]
            row["values"] = [_plain(round(float(x), 4)) for x in own]
            wires.append(row)
        shown = self.about["shown"]
        points = None
        if curve is not None:
            points = {
                "k": curve["k"].values.tolist(),
                "faithfulness": [_plain(float(x)) for x in curve["faithfulness"].values],
                **{name: curve.attrs[name] for name in ("cpr", "cmd", "pairs")},
            }
        return {
            "model": self.about["model"], "task": self.about["pairs"], "holds": self.holds,
            "tokens": shown["tokens"], "changed": shown["changed"], "answers": shown["answers"],
            "position": shown["position"], "total": self.n_wires, "exact": len(self.table),
            "pairs": [e["texts"] for e in self.about["examples"]],
            "templates": data["pair_template"].values.tolist(),
            "wires": wires, "curve": points,
        }  # fmt: skip

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one netCDF file, readable by `headscope.open` and xarray."""
        from headscope.results.files import save_wires

        save_wires(self, path)

    def save_mib(self, path: str | os.PathLike[str], k: float = 0.01) -> None:
        """Write the JSON of a graph that MIB's circuit track and EAP-IG read.

        Edges are `a16.h0->a17.h4<k>`; nodes `input`, `a16.h0`, `m3`, `logits`. The score is minus
        the mean effect on the logit difference. Keys and values of a group are split by head: by
        exact runs, else by the screen. A group's score is never copied to its heads.

        Args:
            path: the file.
            k: wires that are in the graph, as in `circuit`.
        """
        graph = self._mib(k)
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(graph), encoding="utf-8")

    def _mib(self, k: float) -> dict[str, Any]:
        data = self.data
        exists, kept = data["exists"].values.astype(bool), self.circuit(k)
        scale = np.abs(data["gap"].values).sum() / self.n_pairs  # mean effect of a share of 1
        scores = self.scores() * scale
        members = data["screen"].values.sum(0, dtype=np.float64) / self.n_pairs
        places = (data[name].values.tolist() for name in ("wire_source", "wire_reader"))
        by_head = data["share_by_head"].values * scale
        exact = dict(zip(zip(*places, strict=True), by_head, strict=True))
        kinds, layers = data["reader_kind"].values, data["reader_layer"].values
        heads = [json.loads(str(text)) for text in data["reader_heads"].values]
        parts = (data[f"source_{name}"].values.tolist() for name in ("kind", "layer", "head"))
        sources = [_mib_node(*row) for row in zip(*parts, strict=True)]
        edges = {}
        for s, r in np.argwhere(exists):
            kind = str(kinds[r])
            if kind in ("mlp", "logits"):
                name = _mib_node(kind, int(layers[r]), -1)
                edges[f"{sources[s]}->{name}"] = (float(scores[s, r]), bool(kept[s, r]))
                continue
            split = (
                exact.get((int(s), int(r)), members[s, r]) if len(heads[r]) > 1 else [scores[s, r]]
            )
            for head, score in zip(heads[r], split, strict=False):
                name = f"{sources[s]}->a{layers[r]}.h{head}<{kind}>"
                edges[name] = (float(score), bool(kept[s, r]))
        nodes = {*sources, "logits"}
        used = {part for name, (_, is_in) in edges.items() if is_in for part in name.split("->")}
        used = {part.partition("<")[0] for part in used}
        about = self.about["graph"]
        return {
            "cfg": {"n_layers": about["layers"], "n_heads": about["heads"],
                    "parallel_attn_mlp": about["is_parallel"], "d_model": about["width"]},
            "nodes": {name: {"in_graph": name in used} for name in sorted(nodes)},
            "edges": {name: {"score": s, "in_graph": i} for name, (s, i) in edges.items()},
        }  # fmt: skip

    def __repr__(self) -> str:
        cells = [list(COLUMNS), *(self._cells(wire) for wire in self.table[:10])]
        head = (
            f"<Wires of {self.about['model']}: {len(self.table)} exact of {self.n_wires:,}, "
            f"{self.n_pairs} pairs in {self.n_templates} templates>"
        )
        return "\n".join([head, *aligned(cells, LEFT), self.holds])

    def _repr_html_(self) -> str:
        facts = [("model", str(self.about["model"])), ("pairs", f"{self.n_pairs}"),
                 ("templates", f"{self.n_templates}"), ("holds", self.holds)]  # fmt: skip
        facts += [
            (
                f"{wire.source} → {wire.reader}",
                f"{wire.share:+.3f} (stability {wire.stability:.2f})",
            )
            for wire in self.table[:10]
        ]
        return facts_table("Wires", facts)


def _mib_node(kind: str, layer: int, head: int) -> str:
    names = {"embedding": "input", "logits": "logits", "mlp": f"m{layer}"}
    return names.get(str(kind), f"a{layer}.h{head}")


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
