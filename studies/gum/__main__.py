"""Run the study: `python -m studies.gum --data FOLDER`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import headscope as hs
from studies.gum.corpora import read_gum
from studies.gum.figures import save_study_figures
from studies.gum.finding import as_plain
from studies.gum.measure import MODELS, PROBES, measure_model, open_runs, train_probes
from studies.gum.page import all_judgements, write_page

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Measure what is not measured yet, then write the page, its figures and judgements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder of GUM's files")
    parser.add_argument("--out", type=Path, default=ROOT / "studies" / "runs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--probed", nargs="*", default=list(MODELS), help="models to train probes on"
    )
    parser.add_argument("--page", action="store_true", help="write the page from finished runs")
    options = parser.parse_args()
    if not options.page:
        if options.data is None:
            parser.error("--data FOLDER names the folder with GUM's files.")
        documents, with_ontogum = read_gum(options.data), read_gum(options.data, ontogum=True)
        for name in MODELS:
            measure_model(name, documents, with_ontogum, options.out, options.workers)
        for name in options.probed:
            train_probes(name, documents, options.out)
    runs = {name: open_runs(name, options.out) for name in MODELS}
    probes = {
        name: {
            label: hs.open(path)
            for label in PROBES
            if (path := options.out / f"{name}-probe-{label}.nc").is_file()
        }
        for name in MODELS
    }
    probes = {name: found for name, found in probes.items() if len(found) == len(PROBES)}
    judged = all_judgements(runs, probes)
    write_page(judged, runs, probes, ROOT / "docs" / "study.md")
    folder = ROOT / "docs" / "study"
    save_study_figures(runs, folder)
    text = json.dumps(as_plain(judged), indent=1, ensure_ascii=False)
    (folder / "judgements.json").write_text(text + "\n", encoding="utf-8")
    print(f"Written: {ROOT / 'docs' / 'study.md'}")


if __name__ == "__main__":
    main()
