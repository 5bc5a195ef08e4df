"""Run the study: `python -m studies.gum --data FOLDER`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import headscope as hs
from studies.gum.corpora import read_ewt, read_gum
from studies.gum.figures import save_study_figures
from studies.gum.finding import as_plain
from studies.gum.measure import (
    MODELS,
    SECOND,
    TASKS,
    measure_model,
    measure_wires,
    open_probes,
    open_runs,
    train_probes,
)
from studies.gum.page import all_judgements, write_page

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Measure what is not measured yet, then write the page, its figures and judgements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder of GUM's files, beside ud_ewt")
    parser.add_argument("--out", type=Path, default=ROOT / "studies" / "runs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--page", action="store_true", help="write the page from finished runs")
    options = parser.parse_args()
    out = options.out
    if not options.page:
        if options.data is None:
            parser.error("--data FOLDER names the folder with GUM's files.")
        documents, with_ontogum = read_gum(options.data), read_gum(options.data, ontogum=True)
        second = read_ewt(options.data)
        for name in MODELS:
            measure_model(name, documents, with_ontogum, out, options.workers)
            train_probes(name, documents, out)
            measure_model(name, second, None, out, options.workers)
            train_probes(name, documents, out, second)
        measure_wires(out)
    runs = {name: open_runs(name, out) for name in MODELS}
    again = {name: open_runs(f"{name}-{SECOND}", out) for name in MODELS}
    probes = {name: open_probes(name, out) for name in MODELS}
    judged = all_judgements(runs, probes)
    replicated = all_judgements(
        again, {name: open_probes(name, out, is_second=True) for name in MODELS}
    )
    wires = {task: hs.open(out / f"wires-{task}.nc") for task in TASKS}
    write_page(judged, replicated, runs, probes, wires, ROOT / "docs" / "study.md")
    folder = ROOT / "docs" / "study"
    save_study_figures(runs, folder)
    for file, found in {"judgements": judged, "replication": replicated}.items():
        text = json.dumps(as_plain(found), indent=1, ensure_ascii=False)
        (folder / f"{file}.json").write_text(text + "\n", encoding="utf-8")
    print(f"Written: {ROOT / 'docs' / 'study.md'}")


if __name__ == "__main__":
    main()
