"""The tables of docs/probing.md: heads as classifiers on English EWT, GUM and WinoBias.

    python -m studies.probing --data FOLDER

Runs are kept in studies/runs: one that is there is opened, and the page is written anew.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import headscope as hs
from headscope.results.opening import RESULT

if TYPE_CHECKING:
    from headscope.heads.bias_table import BiasRow, BiasTable
    from headscope.heads.probe_table import ProbeRow
    from headscope.results.result import Result

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "probing.md"
MARK = re.compile(r"(<!-- studied: (\w+) -->\n\n).*?(\n\n<!-- end of studied -->)", re.DOTALL)
MODELS = {"minilm": "MiniLM", "smollm2": "SmolLM2"}
FEWEST = 200
"""Relations of fewer words are left out of the table."""
COREFERENCE = (
    ("{}, OntoGUM dev", "ontogum-dev", ("minilm", "smollm2")),
    ("{}, OntoGUM train", "ontogum-train", ("minilm",)),
    ("{}, GUM dev, own entities", "gum-dev", ("minilm", "smollm2")),
)


class Runs:
    """Every run of the page, made when it is not there."""

    def __init__(self, data: Path, out: Path, workers: int) -> None:
        self._data, self._out, self._workers = data, out, workers

    def _run(self, folder: str, probe, *args, **options) -> Result:  # type: ignore[no-untyped-def]
        path = self._out / folder
        if (path / RESULT).is_file():
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
    """Measure what is not there, and write the tables into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="ud_ewt/, gum/ and winobias/")
    parser.add_argument("--out", type=Path, default=ROOT / "studies" / "runs")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    runs = Runs(options.data, options.out, options.workers)
    tables = {
        "relations": "\n".join(relation_lines(runs)),
        "coreference": "\n".join(coreference_lines(runs)),
        "bias": "\n".join(bias_lines(runs)),
    }
    text = PAGE.read_text(encoding="utf-8")
    text = MARK.sub(lambda mark: f"{mark[1]}{tables[mark[2]]}{mark[3]}", text)
    PAGE.write_text(text, encoding="utf-8")


def relation_lines(runs: Runs) -> Iterator[str]:
    """The best head of each relation that is frequent, in both models."""
    first, second = (runs.relations(model).table() for model in MODELS)
    yield (
        "| relation | words | offset | MiniLM | honest | ties | head | SmolLM2 | honest | ties "
        "| visible | head |"
    )
    yield "|---" * 12 + "|"
    for row in first.rows:
        if row.cases < FEWEST:
            continue
        other = second[row.label]
        visible = "" if other.visible is None else f"{100 * other.visible:.1f}"
        yield (
            f"| `{row.label}` | {row.cases:,} | {100 * row.baselines['offset']:.1f} "
            f"({_signed(row.offset)}) | {_accuracy(row)} | {_honest(row)} | {row.ties} "
            f"| {_head(row)} | {_accuracy(other)} | {_honest(other)} | {other.ties} | {visible} "
            f"| {_head(other)} |"
        )


def coreference_lines(runs: Runs) -> Iterator[str]:
    """The best head over all mentions, and the honest scores of each kind."""
    yield (
        "| model, data | mentions | best head | all | honest | pronoun | proper | nominal "
        "| nearest | head match | sieves |"
    )
    yield "|---" * 11 + "|"
    for title, corpus, models in COREFERENCE:
        for model in models:
            table = runs.coreference(model, corpus).table()
            row = table["all"]
            kinds = [
                next((_honest(of) for of in table.rows if of.label == kind), "")
                for kind in ("pronoun", "proper", "nominal")
            ]
            rules = " | ".join(f"{100 * value:.1f}" for value in row.baselines.values())
            yield (
                f"| {title.format(MODELS[model])} | {row.cases:,} | L{row.layer} H{row.head} "
                f"| {_accuracy(row)} | {_honest(row)} | {' | '.join(kinds)} | {rules} |"
            )


def bias_lines(runs: Runs) -> Iterator[str]:
    """The three best coreference heads on WinoBias, and heads chosen on its other half."""
    yield (
        "| type, model, head | coreference | pro | anti | gap | attention to antecedent / other: "
        "pro | anti |"
    )
    yield "|---" * 7 + "|"
    for kind in (1, 2):
        for model, title in MODELS.items():
            heads = runs.coreference(model, "ontogum-dev")
            table = runs.bias(model, kind).table(heads, n=3)
            for row in table.rows:
                yield f"| {kind}, {title}, {_bias(row)} |"
            yield f"| {kind}, {title}, chosen on the other half | | {_chosen(table)} | | |"


def _bias(row: BiasRow) -> str:
    known = "" if row.coreference is None else f"{100 * row.coreference:.1f}"
    low, high = (f"{100 * bound:+.1f}" for bound in (row.gap_low, row.gap_high))
    gap = f"{100 * row.gap:+.1f} [{low}, {high}]".replace("-", "−")
    return (
        f"L{row.layer} H{row.head} | {known} | {100 * row.pro:.1f} | {100 * row.anti:.1f} | {gap} "
        f"| {row.to_true_pro:.3f} / {row.to_other_pro:.3f} "
        f"| {row.to_true_anti:.3f} / {row.to_other_anti:.3f}"
    )


def _chosen(table: BiasTable) -> str:
    pro, anti = table.honest
    sides = (
        f"{100 * value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
        for value, (low, high) in zip(table.honest, table.honest_intervals, strict=True)
    )
    return " | ".join([*sides, f"{100 * (pro - anti):+.1f}".replace("-", "−")])


def _accuracy(row: ProbeRow) -> str:
    low, high = row.interval
    return f"{100 * row.accuracy:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def _honest(row: ProbeRow) -> str:
    """With a star where it beats every baseline, corrected."""
    star = "*" if all(gain.is_clear for gain in row.gains.values()) else ""
    return f"{100 * row.honest:.1f}{star}"


def _head(row: ProbeRow) -> str:
    way = "dep→parent" if row.direction == "dependent" else "parent→dep"
    return f"L{row.layer} H{row.head} {way}"


def _signed(offset: int | None) -> str:
    return "" if offset is None else f"{offset:+d}".replace("-", "−")


if __name__ == "__main__":
    main()
