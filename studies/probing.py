"""Heads as classifiers on English EWT, GUM and WinoBias: the data files behind docs/probing.md.

    python -m studies.probing --data FOLDER    # measure, write docs/data, then page and figure
    python -m studies.probing_page             # page and figure alone, from docs/data

Runs are kept in studies/runs: one that is there is opened.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import headscope as hs
from headscope.results.files import RESULT_FILE
from studies import probing_page

if TYPE_CHECKING:
    from headscope.probes.tables import BiasRow, BiasTable, ProbeRow
    from headscope.results.result import Result

ROOT = Path(__file__).parents[1]
Row = dict[str, str]
MODELS = {"minilm": "MiniLM", "smollm2": "SmolLM2"}
FEWEST = 200
"""Relations of fewer words are left out."""
COREFERENCE = (
    ("OntoGUM dev", "ontogum-dev", ("minilm", "smollm2")),
    ("OntoGUM train", "ontogum-train", ("minilm",)),
    ("GUM dev, own entities", "gum-dev", ("minilm", "smollm2")),
)


class Runs:
    """Every run of the page, made when it is not there."""

    def __init__(self, data: Path, out: Path, workers: int) -> None:
        self._data, self._out, self._workers = data, out, workers

    def _run(self, folder: str, probe, *args, **options) -> Result:  # type: ignore[no-untyped-def]
        path = self._out / folder
        if (path / RESULT_FILE).is_file():
            return hs.open(path)
        return probe(*args, out=path, workers=self._workers, **options)  # type: ignore[no-any-return]

    def relations(self, model: str) -> Result:
        """Dependencies of English EWT's development part."""
        path = self._data / "ud_ewt" / "en_ewt-ud-dev.conllu"
        return self._run(f"{model}-ewt-dependencies", hs.probe_dependencies, model, path)

    def coreference(self, model: str, corpus: str) -> Result:
        """Coreference of a part of GUM, by OntoNotes' rules or by its own."""
        source, part = corpus.split("-")
        path = self._data / "gum" / f"en_gum-{part}.conllu"
        brackets = path.with_suffix(".ontogum.conll") if source == "ontogum" else None
        documents = hs.read(path, unit="document", coreference=brackets)
        return self._run(f"{model}-{corpus}", hs.probe_coreference, model, documents)

    def bias(self, model: str, kind: int) -> Result:
        """WinoBias, sentences of one type."""
        pro, anti = (
            self._data / "winobias" / f"dev_type{kind}_{side}_stereotype.v4_auto_conll"
            for side in ("pro", "anti")
        )
        return self._run(f"{model}-bias{kind}", hs.probe_bias, model, pro, anti)


def main() -> None:
    """Measure what is not there, write the data files, then the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="ud_ewt/, gum/ and winobias/")
    parser.add_argument("--out", type=Path, default=ROOT / "studies" / "runs")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    runs = Runs(options.data, options.out, options.workers)
    for name, rows in (
        ("relations", relation_rows(runs)),
        ("coreference", coreference_rows(runs)),
        ("bias", bias_rows(runs)),
    ):
        write_data(probing_page.data_file(name), list(rows))
    probing_page.main()


def write_data(path: Path, rows: list[Row]) -> None:
    """One CSV file: percentages have one digit, weights three."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def relation_rows(runs: Runs) -> Iterator[Row]:
    """The best head of each relation that is frequent, in both models."""
    first, second = (runs.relations(model).table() for model in MODELS)
    for row in first.rows:
        if row.cases >= FEWEST:
            found = {
                "relation": row.label,
                "words": str(row.cases),
                "offset_accuracy": _percent(row.baselines["offset"]),
                "offset": "" if row.offset is None else str(row.offset),
            }
            for model, of in zip(MODELS, (row, second[row.label]), strict=True):
                found |= {f"{model}_{name}": value for name, value in _best(of).items()}
            yield found


def _best(row: ProbeRow) -> Row:
    low, high = row.interval
    return {
        "accuracy": _percent(row.accuracy),
        "low": _percent(low),
        "high": _percent(high),
        **_honest(row, "honest", "clear"),
        "ties": str(row.ties),
        "visible": "" if row.visible is None else _percent(row.visible),
        "layer": str(row.layer),
        "head": str(row.head),
        "direction": "dep→parent" if row.direction == "dependent" else "parent→dep",
    }


def _honest(row: ProbeRow, score: str, clear: str) -> Row:
    """The honest score, and whether it beats every baseline after correction."""
    is_clear = all(gain.is_clear for gain in row.gains.values())
    return {score: _percent(row.crossfit_accuracy), clear: "yes" if is_clear else "no"}


def coreference_rows(runs: Runs) -> Iterator[Row]:
    """The best head over all mentions, and the honest scores of each kind."""
    for title, corpus, models in COREFERENCE:
        for model in models:
            table = runs.coreference(model, corpus).table()
            row = table["all"]
            low, high = row.interval
            found = {
                "model": MODELS[model],
                "data": title,
                "mentions": str(row.cases),
                "layer": str(row.layer),
                "head": str(row.head),
                "accuracy": _percent(row.accuracy),
                "low": _percent(low),
                "high": _percent(high),
                **_honest(row, "honest", "honest_clear"),
            }
            kinds = {of.label: of for of in table.rows}
            for kind in ("pronoun", "proper", "nominal"):
                of = kinds.get(kind)
                none = {kind: "", f"{kind}_clear": ""}
                found |= none if of is None else _honest(of, kind, f"{kind}_clear")
            yield found | {rule: _percent(value) for rule, value in row.baselines.items()}


def bias_rows(runs: Runs) -> Iterator[Row]:
    """The three best coreference heads on WinoBias, and heads chosen on its other half."""
    for kind in (1, 2):
        for model, title in MODELS.items():
            heads = runs.coreference(model, "ontogum-dev")
            table = runs.bias(model, kind).table(heads, n=3)
            start = {"type": str(kind), "model": title}
            for row in table.rows:
                yield start | _bias(row)
            yield start | _chosen(table)


def _bias(row: BiasRow) -> Row:
    return {
        "layer": str(row.layer),
        "head": str(row.head),
        "coreference": "" if row.coreference is None else _percent(row.coreference),
        "pro": _percent(row.pro),
        "pro_low": "",
        "pro_high": "",
        "anti": _percent(row.anti),
        "anti_low": "",
        "anti_high": "",
        "gap": _percent(row.gap),
        "gap_low": _percent(row.gap_low),
        "gap_high": _percent(row.gap_high),
        "pro_to_antecedent": f"{row.to_true_pro:.3f}",
        "pro_to_other": f"{row.to_other_pro:.3f}",
        "anti_to_antecedent": f"{row.to_true_anti:.3f}",
        "anti_to_other": f"{row.to_other_anti:.3f}",
    }


def _chosen(table: BiasTable) -> Row:
    """Without a head: it is another one in each half."""
    found: Row = {}
    intervals = table.crossfit_intervals
    for side, value, (low, high) in zip(
        ("pro", "anti"), table.crossfit_accuracy, intervals, strict=True
    ):
        found |= {
            side: _percent(value),
            f"{side}_low": _percent(low),
            f"{side}_high": _percent(high),
        }
    pro, anti = table.crossfit_accuracy
    return found | {"gap": _percent(pro - anti)}


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


if __name__ == "__main__":
    main()
