"""`headscope.wires`: which source feeds which reader, with intervals over templates.

Candidates come from two sides by turns, because each is blind to what the other finds: the screen
runs every reader's softmax, EAP-IG follows the path from the contrast. The chosen wires are run
exactly. Runs of one pair are in `pair_wires`.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headscope.arguments import whole_number
from headscope.atomic import atomic_path, read_sealed, sealed
from headscope.causal.ablation import head_sets
from headscope.causal.batched_forward import Head
from headscope.causal.pair_wires import (
    IG_STEPS,
    EncodedPair,
    PairWires,
    Replace,
    WireRun,
    encode_pair,
    encode_pairs,
    graph_of,
    mean_sources,
)
from headscope.causal.patch import TextPairs, as_pairs, closed, require_gap
from headscope.causal.stream_runner import StreamGraph
from headscope.errors import FileFormatError, InputError, UnknownName
from headscope.model.edits import describe_edits
from headscope.model.identity import versions, weights_sha256
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.results.wires import N_SHOWN, Wires
from headscope.run.progress import Meter, phase
from headscope.statistics.intervals import holm, t_critical, t_two_sided
from headscope.statistics.jackknife import Jackknife, pool, ratio_jackknife
from headscope.text.pairs import Pairs, number_templates

STEPS = {"contrast": IG_STEPS, "zero": 0, "mean": IG_STEPS}  # norms have no slope at zero: EAP
N_RESAMPLES = 200
MIN_TEMPLATES = 4
"""Fewer templates have no interval."""
MIN_PAIRS = 16
"""Fewer pairs are said to be few: their top 50 shares less with that of other pairs."""
SIZES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of all wires at which faithfulness is measured (MIB)."""


def wires(
    model: Model | str,
    pairs: TextPairs,
    target: str | int | Sequence[str | int] | None = None,
    foil: str | int | Sequence[str | int] | None = None,
    *,
    replace: Replace = "contrast",
    exact: int = 100,
    templates: Sequence[object] | None = None,
    heads: Sequence[Head] | None = None,
    position: int = -1,
    folder: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: bool | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> Wires:
    """Measure which source feeds which reader on contrast pairs, and how certain that is.

    Sources are the embedding, each head and each MLP. Readers are the queries of each head, the
    keys and values of each group, each MLP and the logits. The effect of a wire is m with the
    source replaced in that reader alone − m; everything above is run again. Its share of the gap is
    Σ sign(gap)·(−effect) / Σ |gap|, over pairs. Shares need not sum to 1.

    All wires are estimated by a screen and by EAP-IG (`zero`: by EAP); the top of both is run
    exactly. Intervals are over templates, because pairs of one template are not independent.
    Stability is the share of resamples of templates in which a wire is chosen again. p values are
    of wires that even templates choose, measured on odd templates, corrected by Holm.

    Wires: Elhage et al. 2021; Goldowsky-Dill et al. 2023. EAP: Syed et al. 2023. EAP-IG: Hanna et
    al. 2024.

    Args:
        model: language model whose layers add up, or an argument of `headscope.load`.
        pairs: `headscope.pairs`, pairs of texts of equal numbers of tokens, or a file of them.
        target: answer of the first texts (by default their top prediction): one, or one each.
        foil: answer of the second texts: one, or one each.
        replace: `contrast`, a source's value in the second text; `zero`; or `mean`, over all
            positions of all texts. Zero and mean keep the first position, an attention sink.
        exact: number of wires to run exactly.
        templates: label of each pair's template; by default those of `pairs`, or near-copies.
        heads: only wires from or to these pairs of layer and head.
        position: position of the prediction.
        folder: folder for results of single pairs. A second call goes on where the first stopped.
        seed: seed of the resamples.
        progress: show progress; by default on a terminal.
        on_step: called with the number of runs over a pair that are done, and of all of them.

    Raises:
        InputError: the texts of a pair differ in length or in most places, or have no gap.
        TapUnsupported: the layers of the model do not add up, with the reason.
    """
    UnknownName.check("replace", replace, STEPS)
    n_exact = whole_number("exact", exact)
    whole_number("seed", seed, 0)
    given = as_pairs(pairs, target, foil, templates)
    with phase(f"checking {getattr(model, 'name', model)}", progress):
        model = as_model(model)
        encoded, graph = encode_pairs(model, given, position)
    candidates = graph.exists if heads is None else graph.exists & _touching(graph, heads)
    numbers = number_templates([first for first, _ in given.texts], given.templates)
    mean = mean_sources(graph, encoded) if replace == "mean" else None
    kept = None if folder is None else Path(folder) / "pairs"
    common: dict[str, object] = {}
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        weights = weights_sha256(model.module)
        common = {"weights": weights, "replace": replace, "steps": STEPS[replace], **versions()}
        common |= {"edits": [repr(edit) for edit in model.edits]} if model.edits else {}
        if mean is not None:  # of all pairs, so other pairs give other numbers
            common["mean"] = hashlib.sha256(mean.cpu().numpy().tobytes()).hexdigest()

    def measure(
        pair: EncodedPair, kind: object, make: Callable[[PairWires], dict[str, np.ndarray]]
    ) -> dict[str, np.ndarray]:
        """Return numbers of a pair; a stopped call goes on with those in the folder."""
        key = {"texts": pair.texts, "answers": [pair.target, pair.foil],
               "position": pair.position, "kind": kind}  # fmt: skip
        return _stored(kept, common | key, lambda: make(pair.run(graph, replace, mean)))

    n_done = itertools.count(1)
    with closing(Meter(2 * len(encoded), shown=progress)) as meter:

        def advance(amount: int) -> None:
            meter.advance(amount)
            if on_step is not None:
                on_step(next(n_done), 2 * len(encoded))

        n_members = max(len(reader.heads) for reader in graph.readers)
        shape = (int(numbers.max()) + 1, *graph.exists.shape)
        integrated, screen = np.zeros(shape), np.zeros((*shape, n_members))
        gaps = np.zeros(len(encoded))
        for i, (pair, number) in enumerate(zip(encoded, numbers, strict=True)):
            found = measure(pair, "estimates", _estimate)
            gaps[i] = found["gap"]
            for name, total in (("integrated", integrated), ("screen", screen)):
                total[number] -= np.sign(gaps[i]) * found[name]  # the closed part of the gap
            advance(1)
        require_gap(gaps)
        chosen = choose(integrated.sum(0), screen.sum(0), candidates, n_exact)
        runs: list[WireRun] = []
        columns: list[tuple[int, int]] = []  # 0 is the whole effect, then the heads of a group
        for number, (source, reader) in enumerate(chosen.tolist()):
            heads_of = graph.readers[reader].heads
            members = (-1, *heads_of) if len(heads_of) > 1 else (-1,)
            runs += [WireRun(source, reader, head) for head in members]
            columns += [(number, column) for column in range(len(members))]
        kind = ["exact", [(run.source, run.reader, run.head) for run in runs]]
        effects = np.full((len(encoded), len(chosen), 1 + n_members), np.nan)
        for own, pair in zip(effects, encoded, strict=True):
            found = measure(pair, kind, lambda run: {"effects": run.exact(runs)})
            own[tuple(np.transpose(columns))] = found["effects"]
            advance(1)
    sizes = pool(np.abs(gaps), numbers)
    measured = _MeasuredWires(candidates, integrated, screen, chosen, effects, gaps, numbers)
    table = measured.shares()
    table |= {"stability": measured.stability(seed), "p": measured.held_out_p()}
    for name, values in (("estimate", integrated), ("screened", screen.sum(-1))):
        table[name] = values.sum(0)[tuple(chosen.T)] / sizes.sum()
    shown = encoded[0]
    run = shown.run(graph, replace, mean)
    table |= _places(run, chosen, table, shown.position)
    said = describe(numbers, len(encoded))
    about = {
        "model": model.name, "family": model.info.family, "pairs": given.name,
        "replace": replace, "exact": n_exact, "ig_steps": STEPS[replace], "seed": seed,
        "position": int(position), "number": "logit(target) − logit(foil)", "versions": versions(),
        "holds": "; ".join(filter(None, (said, describe_edits(model.edits)))),
        "shown": {
            "texts": list(shown.texts), "tokens": [list(t.tokens) for t in shown.tokens],
            "changed": list(shown.changed), "position": shown.position,
            "answers": [name.strip() for name in run.answer.names],
        },
        "graph": {
            "layers": len(graph.layers), "is_parallel": graph.is_parallel,
            "heads": max(site.n_heads for site in graph.sites.values()),
            "width": int(run.deltas.shape[-1]),
        },
        "examples": _examples(given),
    }  # fmt: skip
    return Wires(measured.dataset(graph, table), about, model)


def _examples(pairs: Pairs) -> list[dict[str, Any]]:
    columns = map(list, pairs.texts), pairs.targets, pairs.foils, pairs.templates
    names = "texts", "target", "foil", "template"
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def describe(numbers: np.ndarray, n_pairs: int) -> str:
    """Return in words what the numbers are about, and what is too few."""
    n = int(numbers.max()) + 1
    if n == 1:
        plural = f"{n_pairs} pairs" if n_pairs > 1 else "one pair"
        return (
            f"{plural} of one template: about these words in this sentence, not the construction; "
            "without interval, stability and test"
        )
    said = f"{n_pairs} pairs of {n} templates"
    if n < MIN_TEMPLATES:
        return f"{said}, fewer than {MIN_TEMPLATES}: without interval; other sentences may differ"
    said += ": intervals are over templates"
    if n_pairs < MIN_PAIRS:
        said += f"; fewer than {MIN_PAIRS} pairs, so the top may change with the words"
    return said if n >= 2 * MIN_TEMPLATES else f"{said}; fewer than 8 templates, so without test"


def _stored(
    folder: Path | None, key: Mapping[str, object], make: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return arrays stored in a folder under the hash of a key, or make and store them."""
    if folder is None:
        return make()
    digest = hashlib.sha256(json.dumps(key, default=str).encode()).hexdigest()[:24]
    file = folder / f"{digest}.npz"
    if file.is_file():
        try:
            with np.load(io.BytesIO(read_sealed(file)), allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        except FileFormatError:
            file.unlink()  # damaged: measured again
    arrays = make()
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    with atomic_path(file) as temporary:
        temporary.write_bytes(sealed(content.getvalue()))
    return arrays


def _touching(graph: StreamGraph, heads: Sequence[Head]) -> np.ndarray:
    """Return `source reader`: True for wires from or to these heads."""
    sets = head_sets(graph.model, heads, graph.model.wiring.main_block())
    chosen = {head for some in sets for head in some}
    sources = np.array([(u.layer, u.head) in chosen for u in graph.sources])
    readers = np.array([any((r.layer, h) in chosen for h in r.heads) for r in graph.readers])
    return np.asarray(sources[:, None] | readers)


def _estimate(run: PairWires) -> dict[str, np.ndarray]:
    return {
        "gap": np.array(run.gap),
        "integrated": run.integrated(STEPS[run.replace]).astype(np.float32),
        "screen": run.screen().astype(np.float32),
    }


def choose(
    integrated: np.ndarray, screen: np.ndarray, candidates: np.ndarray, n: int
) -> np.ndarray:
    """Return `wire 2`: n sources and readers, from the top of the screen and of EAP-IG by turns. A
    group's wire is ranked by the largest of its sum and of its heads: opposite heads cancel.
    """
    largest = np.maximum(np.abs(screen.sum(-1)), np.abs(screen).max(-1))
    lists = []
    for values in (largest, np.abs(integrated)):
        ranked = np.where(candidates, values, -1.0).ravel()
        n_top = min(n, int(candidates.sum()))
        top = np.argpartition(-ranked, max(n_top - 1, 0))[:n_top]
        lists.append(top[np.argsort(-ranked[top], kind="stable")])
    turns = np.stack(lists, 1).ravel()
    order = list(dict.fromkeys(turns.tolist()))[:n]
    return np.stack(np.unravel_index(order, candidates.shape), 1)


def clustered(changes: np.ndarray, gaps: np.ndarray, numbers: np.ndarray) -> Jackknife:
    """Return the share of the gap (`pair …`), with templates as buckets."""
    sizes = np.abs(gaps).reshape(-1, *(1,) * (changes.ndim - 1))
    return ratio_jackknife(
        pool(changes, numbers), pool(np.broadcast_to(sizes, changes.shape), numbers)
    )


@dataclass(frozen=True, eq=False)
class _MeasuredWires:
    """Estimates of all wires by template, and exact effects of the chosen ones by pair."""

    candidates: np.ndarray
    integrated: np.ndarray
    screen: np.ndarray
    chosen: np.ndarray
    effects: np.ndarray
    gaps: np.ndarray
    numbers: np.ndarray

    def shares(self) -> dict[str, np.ndarray]:
        """Return shares with intervals, t with G − 1 degrees of freedom over G templates."""
        effects, gaps = self.effects, self.gaps
        whole = clustered(closed(effects[..., 0], gaps), gaps, self.numbers)
        n = len(self.integrated)
        half = np.full(whole.value.shape, np.nan)
        if n >= MIN_TEMPLATES:
            half = t_critical(n - 1.0) * np.sqrt(whole.variance)
        split = closed(effects[..., 1:], gaps).sum(0) / np.abs(gaps).sum()
        return {"share": whole.value, "low": whole.value - half, "high": whole.value + half,
                "share_by_head": split}  # fmt: skip

    def _again(self, integrated: np.ndarray, screen: np.ndarray) -> tuple[np.ndarray, int]:
        """Return which wires other estimates choose as well, and how many they choose."""
        again = choose(integrated, screen, self.candidates, len(self.chosen))
        shape = self.candidates.shape
        flat, others = (np.ravel_multi_index(tuple(x.T), shape) for x in (self.chosen, again))
        return np.isin(flat, others), len(again)

    def stability(self, seed: int) -> np.ndarray:
        """Return the share of resamples of templates in which each wire is chosen."""
        n = len(self.integrated)
        if n < 2:
            return np.full(len(self.chosen), np.nan)
        draw = np.random.default_rng(seed)
        counts = np.zeros(len(self.chosen))
        for _ in range(N_RESAMPLES):
            weights = np.bincount(draw.integers(n, size=n), minlength=n).astype(float)
            sums = [np.tensordot(weights, values, 1) for values in (self.integrated, self.screen)]
            counts += self._again(sums[0], sums[1])[0]
        return counts / N_RESAMPLES

    def held_out_p(self) -> np.ndarray:
        """Return p of wires that even templates choose, tested on odd ones, corrected by Holm.
        Wires that even templates choose and that were not run count as p = 1.
        """
        p = np.full(len(self.chosen), np.nan)
        odd = self.numbers % 2 == 1
        n_odd = len(set(self.numbers[odd].tolist()))
        if n_odd < MIN_TEMPLATES:
            return p
        known, n_chosen = self._again(self.integrated[::2].sum(0), self.screen[::2].sum(0))
        _, renumbered = np.unique(self.numbers[odd], return_inverse=True)
        gaps = self.gaps[odd]
        share = clustered(closed(self.effects[odd, :, 0], gaps), gaps, renumbered)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(share.value == 0, 0.0, share.value / np.sqrt(share.variance))
        tested = t_two_sided(t, n_odd - 1.0)[known]
        p[known] = holm(np.append(tested, np.ones(n_chosen - int(known.sum()))))[: len(tested)]
        return p

    def dataset(self, graph: StreamGraph, table: Mapping[str, np.ndarray]) -> xr.Dataset:
        """Return all numbers, with the table's columns over `wire`."""
        every = ("template", "source", "reader")
        variables: dict[str, Any] = {
            "integrated": (every, self.integrated.astype(np.float32)),
            "screen": ((*every, "member"), self.screen.astype(np.float32)),
            "exists": (("source", "reader"), graph.exists.astype(np.int8)),
            "gap": ("pair", self.gaps),
            "pair_template": ("pair", self.numbers),
            "exact": (("wire", "pair"), self.effects[..., 0].T),
            "wire_source": ("wire", self.chosen[:, 0]),
            "wire_reader": ("wire", self.chosen[:, 1]),
            "source_kind": ("source", np.array([u.kind for u in graph.sources], dtype=object)),
            "source_layer": ("source", [u.layer for u in graph.sources]),
            "source_head": ("source", [u.head for u in graph.sources]),
            "reader_kind": ("reader", np.array([r.kind for r in graph.readers], dtype=object)),
            "reader_layer": ("reader", [r.layer for r in graph.readers]),
            "reader_heads": (
                "reader", np.array([json.dumps(r.heads) for r in graph.readers], dtype=object)
            ),
        }  # fmt: skip
        for name, values in table.items():
            variables[name] = (("wire", "member") if values.ndim > 1 else "wire", values)
        coords = {
            "source": np.array([u.name for u in graph.sources], dtype=object),
            "reader": np.array([r.name for r in graph.readers], dtype=object),
        }
        return xr.Dataset(variables, coords=coords)


def _places(
    run: PairWires, chosen: np.ndarray, table: Mapping[str, np.ndarray], position: int
) -> dict[str, np.ndarray]:
    """Return where the largest wires are read in one pair, and the part of that position. A source
    is replaced at one position at a time.
    """
    every = np.abs(np.column_stack((table["share"], table["share_by_head"])))
    sizes = np.fmax.reduce(every, axis=1)
    at, part = np.full(len(chosen), -1), np.full(len(chosen), np.nan)
    runs, places = [], []
    for i in np.argsort(-sizes, kind="stable")[:N_SHOWN]:
        source, reader = chosen[i].tolist()
        if run.graph.readers[reader].kind == "logits":
            at[i], part[i] = position, 1.0
            continue
        lengths = run.deltas[source].abs().amax(-1)
        changed = [t for t, x in enumerate(lengths.tolist()) if x > 1e-6]
        runs += [WireRun(source, reader, place=t) for t in changed]
        places += [(i, t) for t in changed]
    effects = run.exact(runs) if runs else np.zeros(0)
    for i in {i for i, _ in places}:
        own = [(value, t) for value, (j, t) in zip(effects, places, strict=True) if j == i]
        value, t = max(own, key=lambda row: abs(row[0]))
        total = sum(abs(x) for x, _ in own)
        if total > 0:
            at[i], part[i] = t, abs(value) / total
    return {"at": at, "part": part}


def measure_curve(
    wires: Wires,
    model: Model | str,
    pairs: Pairs | None,
    *,
    n_pairs: int,
    progress: bool | None,
    **ranking: bool,
) -> xr.Dataset:
    """See `Wires.curve`."""
    loaded = as_model(model)
    numbers = wires.data["pair_template"].values
    ranked_on: list[int] | None = None
    if pairs is None:
        if wires.n_templates < 2:
            raise InputError(
                "All pairs are of one template, which ranks the wires: faithfulness on them would "
                "be in-sample. Give held-out pairs: curve(pairs=…)."
            )
        ranked_on = list(range(0, wires.n_templates, 2))
        examples = [e for e, n in zip(wires.about["examples"], numbers, strict=True) if n % 2]
    else:
        examples = _examples(as_pairs(pairs))
    step = max(1, len(examples) // whole_number("n_pairs", n_pairs))
    chosen = examples[::step][:n_pairs]
    at = int(wires.about.get("position", -1))
    encoded = [encode_pair(loaded, tuple(e["texts"]), e["target"], e["foil"], at) for e in chosen]
    graph = graph_of(loaded, encoded[0])
    kept = [wires.circuit(size, templates=ranked_on, **ranking) for size in SIZES]
    values = np.zeros((len(encoded), len(SIZES)))
    ends = np.zeros((len(encoded), 2))
    with closing(Meter(len(encoded) * len(SIZES), shown=progress)) as meter:
        for i, pair in enumerate(encoded):
            run = pair.run(graph)
            ends[i] = run.value, run.other_value
            for j, mask in enumerate(kept):
                values[i, j] = run.alone(mask)
                meter.advance(1)
    first, second = ends.mean(0)
    if first == second:
        raise InputError("The held-out pairs have no gap: faithfulness is not defined.")
    f = (values.mean(0) - second) / (first - second)
    cpr, cmd = (float(np.trapezoid(y, SIZES)) for y in (f, np.abs(1 - f)))
    return xr.Dataset(
        {"faithfulness": ("k", f), "wires": ("k", [int(mask.sum()) for mask in kept])},
        coords={"k": list(SIZES)},
        attrs={
            "cpr": cpr, "cmd": cmd, "pairs": len(encoded), "model": loaded.name,
            "ranked_by": "size" if ranking["is_absolute"] else "share",
            "embedding": "kept" if ranking["keeps_embedding"] else "ranked",
        },
    )  # fmt: skip
