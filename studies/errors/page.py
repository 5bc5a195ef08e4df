"""The tables and the figure of docs/statistics.md, from what the study counted.

python -m studies.errors.page
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from headscope.figures.style import BLUE, ORANGE, new_figure, save_figure, styled
from headscope.statistics.jackknife import MAX_INFLUENCE
from studies.errors.measures import KNOWN, KNOWN_TO_SPACY, SCALES
from studies.errors.record import Rate, read_rates

__all__ = ["PAGE", "coverage_figure", "write_page", "written"]

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "statistics.md"
FIGURE = DOCS / "figures" / "coverage.png"
MARK = re.compile(r"(<!-- errors: (\w+) -->\n).*?(<!-- end of errors -->)", re.DOTALL)
ENOUGH = 5.0
"""Effective documents from which on intervals promise their coverage."""
PROMISED = 0.92, 0.97
LEVEL, BOUND = 0.05, 0.07
"""Of error rates, and of their upper Monte Carlo bounds."""
CLAIMS = {
    "groups": "kinds of text “differ” whose labels were shuffled",
    "relations": "any of many heads “beats” the offset it is tied with",
    "value, logit": "any head “above” its own true share",
    "value, positive": "any head “above” its own true distance or entropy",
    "half": "false heads of a list, half of the heads above a number",
    "mean": "any head “above the mean” that is not so in most documents",
    "changed": "any head “changed” that is not so in most documents",
    "mean, total": "any head “above the mean” of heads alike in total",
    "changed, total": "any head “changed” of heads alike in total",
}
SENTENCES = (
    ("Mean, share or distance with its interval", "jackknife, Student's t", "none", "coverage"),
    ("Differs between models (means over heads)", "paired t", "measures", "pair"),
    ("Kinds of text differ", "documents shuffled", "measures", "groups"),
    ("Grows or falls by … a layer", "slope, jackknife", "none", "slope"),
    ("Most in layer …, the head that … most", "set of what cannot be told from it", "all", "best"),
    ("Heads beat the best offset for a relation", "cross-fitted, every offset", "relations",
     "relations"),
    ("N heads are above a number", "jackknife and sign test", "heads (list)", "value"),
    ("N heads are above the mean, a baseline", "the same, paired", "heads (list)", "mean"),
    ("N heads changed", "the same, paired, two-sided", "heads (list)", "changed"),
    ("For n tags there is a head …", "jackknife and sign test", "heads and tags", "tags"),
    ("The head that depends least on the text …", "the same", "heads", "variability"),
    ("Gradients are larger at a class of keys", "paired t", "classes of keys",
     "importance of classes"),
    ("Without a head the prediction changes", "t over texts, Hall", "heads",
     "effects over texts"),
    ("N heads change the loss", "the same, per token", "heads (list)", "heads change the loss"),
    ("A head carries a share of the gap", "the same, over pairs", "heads", "patching"),
    ("r over heads", "jackknife of Fisher's z", "describes", "r"),
    ("From … in layer a to … in layer b", "paired t", "pairs of layers",
     "made-up documents: false in at most .013"),
    ("N layers are above a baseline", "paired t", "layers",
     "made-up shares: false in at most .028"),
    ("The best heads of a model are better", "cross-fitted, every head", "relations",
     "made-up documents: false in at most .04"),
    ("Heads find antecedents, more than a rule", "cross-fitted, paired", "rules", "antecedents"),
    ("Weighted by norms, null attention falls", "paired t", "none", "norms"),
    ("Trained probes find the parent of …", "jackknife", "describes", "probes"),
    ("N findings hold on another corpus", "as found, one-sided", "findings", "replicates"),
    ("The first head of a role in training", "set of what may be first", "steps", "first"),
    ("From step … on it stays above 50 %", "interval at each step", "steps (Bonferroni)", "onsets"),
    ("N planned claims hold", "one-sided, with the sign test", "planned tests", "planned"),
    ("N of M claims hold", "all of these", "claims (Holm)", "end to end, below"),
)  # fmt: skip
"""Kinds of sentences: the words, the test, over what it is corrected, and the question here. If no
question of the study is about them: what `tests/statistics` and `tests/run` count."""
HELD = ("coverage", "pair", "slope", "best", "r", "probes", "first", "onsets")
"""Questions whose rates are of intervals and sets that hold, not of false claims."""
USED = "used"
"""For choosing procedures; other populations were held out."""
PANELS = ("null_share", "dep_alignment", "distance", "entropy")
Rates = Sequence[Rate]


def write_page() -> None:
    """The page with its tables as the stored rates have them, and its figure."""
    rates = read_rates()
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), rates), encoding="utf-8")
    save_figure(coverage_figure(rates), FIGURE)


def written(text: str, rates: Rates) -> str:
    """A page with its tables as the rates have them."""
    return MARK.sub(lambda of: f"{of[1]}\n{TABLES[of[2]](rates)}\n\n{of[3]}", text)


def coverage_figure(rates: Rates) -> Figure:
    """Coverage by the number of documents, a line for each population: before and now."""
    with styled():
        figure = new_figure(7.0, 2.1)
        panels = figure.subplots(1, len(PANELS), sharey=True)
        for axes, variable in zip(panels, PANELS, strict=True):
            mine = [rate for rate in _asked(rates, "coverage") if rate.variable == variable]
            sizes = sorted({rate.documents for rate in mine})
            axes.axhspan(*PROMISED, color=BLUE, alpha=0.12, linewidth=0)
            for population in sorted({rate.population for rate in mine}):
                line = sorted(
                    (r for r in mine if r.population == population), key=lambda r: r.documents
                )
                at = [sizes.index(rate.documents) for rate in line]
                axes.plot(at, [r.before for r in line], color=ORANGE, linewidth=0.8, marker=".",
                          markersize=3)  # fmt: skip
                axes.plot(at, [r.now for r in line], color=BLUE, linewidth=0.8,
                          linestyle="-" if line[0].choosing == USED else "--")  # fmt: skip
                for is_enough in (True, False):
                    shown = [(x, r.now) for x, r in zip(at, line, strict=True)
                             if (r.effective >= ENOUGH) == is_enough]  # fmt: skip
                    axes.plot(*np.array(shown).reshape(-1, 2).T, color=BLUE, linestyle="",
                              marker="o", markersize=3, markeredgewidth=0.7,
                              markerfacecolor=BLUE if is_enough else "white")  # fmt: skip
            axes.set_title(variable)
            axes.set_xticks(range(len(sizes)), [str(n) for n in sizes])
            axes.set_xlabel("documents")
        panels[0].set_ylabel("intervals that hold")
        for color, style, label in (
            (ORANGE, "-", "before"), (BLUE, "-", "now"), (BLUE, "--", "now, held out"),
        ):  # fmt: skip
            panels[-1].plot([], [], color=color, linestyle=style, linewidth=1.2, label=label)
        panels[-1].legend(loc="lower right", handlelength=1.6)
    return figure


def _coverage_table(rates: Rates) -> str:
    lines = [
        "| 95 % intervals of | before | now, within | held out, within "
        "| below 5 effective: lowest | width at 200 |",
        "|---|---|---|---|---|---|",
    ]
    for what, mine in _kinds_of_intervals(rates).items():
        used, held = _by_choosing(r for r in mine if not r.effective < ENOUGH)
        few = [r.now for r in mine if r.effective < ENOUGH]
        before = [r.before for r in mine if r.choosing == USED and np.isfinite(r.before)]
        widths = [r.width for r in mine if r.documents == 200 and np.isfinite(r.width)]
        earlier = f"{_number(min(before))}–{_number(max(before))}" if before else "–"
        lines.append(
            f"| {what} | {earlier} "
            f"| {_spread(used)} | {_spread(held)} | {_number(min(few)) if few else '–'} "
            f"| {f'× {max(widths):.2f}' if widths else '–'} |"
        )
    return "\n".join(lines)


def _kinds_of_intervals(rates: Rates) -> dict[str, list[Rate]]:
    """Rates of coverage, by what the intervals are of."""
    kinds: dict[str, list[Rate]] = {}
    for rate in _asked(rates, "coverage"):
        kind = rate.variable.split(", ")[0]
        kinds.setdefault(f"`{kind}`" if kind in SCALES else kind, []).append(rate)
    for rate in _asked(rates, "r"):
        both = " and ".join(f"`{part}`" for part in rate.variable.split(", "))
        kinds.setdefault(f"r of {both}", []).append(rate)
    kinds["a difference of two models, paired"] = _asked(rates, "pair")
    kinds["the slope over layers"] = _asked(rates, "slope")
    return {what: of for what, of in kinds.items() if of}


def _spread(of: Rates) -> str:
    """Lowest to highest, and how many keep the promise."""
    if not of:
        return "–"
    now = [rate.now for rate in of]
    inside = sum(map(_keeps, of))
    return f"**{_number(min(now))}**–{_number(max(now))}, {inside}/{len(now)}"


def _claims_table(rates: Rates) -> str:
    lines = [
        "| false claim | before | now: highest (bound), missed | not driven | held out "
        "| not driven |",
        "|---|---|---|---|---|---|",
    ]
    for question, what in CLAIMS.items():
        used, held = _by_choosing(_claimed(rates, question))
        before = [r.before for r in used if np.isfinite(r.before)]
        highest = _number(max(before)) if before else "–"
        cells = [_worst(some) for of in (used, held) for some in (of, _apart(of))]
        lines.append(f"| {what} | {highest} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _worst(of: Rates) -> str:
    """The highest rate, and how many miss the targets."""
    if not of:
        return "–"
    worst = max(of, key=lambda r: (r.now, r.bound))
    missed = sum(not _holds(rate) for rate in of)
    return f"**{_number(worst.now)}** ({_number(worst.bound)}), {missed}/{len(of)}"


def _apart(of: Rates) -> list[Rate]:
    """The same rates, of the heads alone that no document decides; those that were counted so."""
    return [
        replace(rate, now=rate.undecided, bound=rate.undecided_bound)
        for rate in of
        if np.isfinite(rate.undecided)
    ]


def _missed_table(rates: Rates) -> str:
    """Every error rate that misses its target, and what it is of the heads no document decides."""
    lines = ["| false claim | population | documents: rates (not driven) |", "|---|---|---|"]
    for question, what in CLAIMS.items():
        if question.endswith(", total"):  # what no test can hold: counted above
            continue
        missed: dict[str, dict[str, list[Rate]]] = {}
        for rate in _claimed(rates, question):
            if not _holds(rate):
                mine = missed.setdefault(_population(rate), {})
                mine.setdefault(rate.variable, []).append(rate)
        claim = " ".join(re.findall("“.*?”", what))
        for population, variables in missed.items():
            shown = ", ".join(
                f"`{variable}`{_decides(of)} {_sizes(of)}{_without(of)}"
                for variable, of in variables.items()
            )
            lines.append(f"| {claim} | {population} | {shown} |")
    return "\n".join(lines) if len(lines) > 2 else "None."


def _sizes(of: Rates) -> str:
    """`8/20: .058/.080`."""
    return f"{'/'.join(str(r.documents) for r in of)}: {'/'.join(_number(r.now) for r in of)}"


def _without(of: Rates) -> str:
    """` (.031/.044)`: the rates without the heads that one document decides, if they differ."""
    apart = _apart(of)
    is_same = all(round(rate.now, 3) == round(rate.undecided, 3) for rate in of)
    if is_same or len(apart) < len(of):
        return ""
    return f" ({'/'.join(_number(rate.now) for rate in apart)})"


def _outside_table(rates: Rates) -> str:
    """Coverage outside of the promise, from 5 effective documents on: what is too low by name."""
    low: dict[str, dict[str, list[Rate]]] = {}
    high: dict[str, int] = {}
    for what, of in _kinds_of_intervals(rates).items():
        for rate in (r for r in of if not (r.effective < ENOUGH or _keeps(r))):
            if rate.now > PROMISED[1]:
                high[what] = high.get(what, 0) + 1
            else:
                low.setdefault(what, {}).setdefault(_population(rate), []).append(rate)
    lines = []
    for what, by_population in low.items():
        where = "; ".join(
            f"{population} {_sizes(missed)}{_without(missed)}"
            for population, missed in by_population.items()
        )
        lines.append(f"- {what}: {where}")
    careful = ", ".join(f"{what} {n}" for what, n in high.items())
    return "\n".join([*(lines or ["- none below"]), f"- above .97: {careful or 'none'}"])


def _population(rate: Rate) -> str:
    """`MiniLM/GAP`, starred where it was held out."""
    return rate.population.replace(", ", "/") + "*" * (rate.choosing != USED)


def _decides(of: Rates) -> str:
    """The largest share of one document in what a head varies by, where it is more than half."""
    share = max(rate.heaviest for rate in of)
    return f" ({_number(share, 2)})" if share > MAX_INFLUENCE else ""


def _power_table(rates: Rates) -> str:
    """What is found of what is there: the range over populations and variables."""
    sizes = (12, 20, 64, 200)
    lines = [
        "| found of what is there | " + " | ".join(f"{n} documents" for n in sizes) + " |",
        "|---|" + "---|" * len(sizes),
    ]
    shares = [variable for variable, scale in SCALES.items() if scale == "logit"]
    others = [variable for variable in SCALES if variable not in shares]
    asked = [
        *(
            (f"`{one}` beats every offset", "known", [one, other])
            for one, other in zip(KNOWN, KNOWN_TO_SPACY, strict=True)
        ),
        ("heads 10 % above a number, shares", "half, power", shares),
        ("the same, distance and entropy", "half, power", others),
        ("heads 20 % above the mean", "mean, power", list(SCALES)),
    ]
    for what, question, variables in asked:
        mine = [rate for rate in _asked(rates, question) if rate.variable in variables]
        cells = []
        for n in sizes:
            found = [rate.now for rate in mine if rate.documents == n]
            cells.append(f"{_number(min(found), 2)}–{_number(max(found), 2)}" if found else "–")
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _front_table(rates: Rates) -> str:
    mine = [rate for rate in rates if rate.question.startswith("front")]
    sizes = sorted({r.documents for r in _asked(mine, "front coverage")})
    lines = [
        "| 95 % intervals that hold | "
        + " | ".join(f"{n} documents (effective)" for n in sizes)
        + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for variable in _variables(mine, "front coverage"):
        cells = [
            f"{_number(r.now)} ({r.effective:.0f})"
            for r in sorted(_asked(mine, "front coverage"), key=lambda r: r.documents)
            if r.variable == variable
        ]
        lines.append(f"| `{variable}` | {' | '.join(cells)} |")
    said = {
        "front groups": "say that kinds of text differ, whose labels were assigned at random",
        "front relations": "say of random weights that a head beats every offset",
    }
    lines += [
        f"\nOf {r.repetitions} reports, {round(r.now * r.repetitions)} ({r.now:.1%}, at most "
        f"{r.bound:.1%}) {said[r.question]}.".replace("%", " %")
        for question in said
        for r in _asked(mine, question)
    ]
    return "\n".join(lines)


def _sentences_table(rates: Rates) -> str:
    """Every kind of sentence in reports: its test, its family, and how often it was wrong."""
    lines = ["| sentence | test | corrected over | measured: used; held out |", "|---|---|---|---|"]
    for sentence, test, family, question in SENTENCES:
        mine = _asked(rates, question) or [
            rate for rate in _asked(rates, "causal claim") if rate.variable == question
        ]
        mine = [rate for rate in mine if not rate.effective < ENOUGH]
        totals = _by_choosing(_asked(rates, f"{question}, total"))
        cells = [] if mine else [question]
        for some, total in zip(_by_choosing(mine), totals, strict=True):
            now = [rate.now for rate in some]
            if not now:
                cells += ["–"] if mine else []
            elif question in HELD:
                cells.append(f"holds in {_number(min(now))}–{_number(max(now))}")
            else:
                highest = max((rate.now for rate in total), default=math.nan)
                of_total = f" (of the total {_number(highest)})" if total else ""
                cells.append(f"false in at most {_number(max(now))}{of_total}")
        lines.append(f"| {sentence} | {test} | {family} | {'; '.join(cells)} |")
    return "\n".join(lines)


def _sets_table(rates: Rates) -> str:
    """Superlatives, and the sets that go with them."""
    lines = [
        "| the highest and the lowest | superlative true: lowest | set holds it: used | held out |",
        "|---|---|---|---|",
    ]
    for what in ("layers", "heads"):
        mine = [r for r in _asked(rates, "best") if r.variable.endswith(what)]
        mine = [r for r in mine if np.isfinite(r.now)]
        used, held = _by_choosing(mine)
        before = min(rate.before for rate in mine)
        cells = [f"{_number(min(r.now for r in of))}–{_number(max(r.now for r in of))}" if of
                 else "–" for of in (used, held)]  # fmt: skip
        lines.append(f"| {what[:-1]} | {_number(before)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _claimed(rates: Rates, question: str) -> list[Rate]:
    """The rates of a false claim, in the order of the file."""
    scale = ""
    if question.startswith("value, "):
        question, _, scale = question.partition(", ")
    found = [r for r in _asked(rates, question) if np.isfinite(r.bound)]
    return [r for r in found if not scale or SCALES[r.variable] == scale]


def _by_choosing(rates: Iterable[Rate]) -> tuple[list[Rate], list[Rate]]:
    """Rates of populations on which procedures were chosen, and of those held out."""
    every = list(rates)
    used = [rate for rate in every if rate.choosing == USED]
    return used, [rate for rate in every if rate.choosing != USED]


def _keeps(rate: Rate) -> bool:
    return PROMISED[0] <= round(rate.now, 3) <= PROMISED[1]


def _holds(rate: Rate) -> bool:
    return round(rate.now, 3) <= LEVEL and round(rate.bound, 3) <= BOUND


def _asked(rates: Iterable[Rate], question: str) -> list[Rate]:
    return [rate for rate in rates if rate.question == question]


def _variables(rates: Rates, question: str) -> list[str]:
    return list(dict.fromkeys(rate.variable for rate in _asked(rates, question)))


def _number(value: float, digits: int = 3) -> str:
    """`.052`, as in tables of probabilities."""
    return f"{value:.{digits}f}".removeprefix("0")


def _causal_table(rates: Rates) -> str:
    """Coverage and false claims of causal statements: before → now at each size."""
    sizes = (8, 20, 64)
    lines = [
        "| statement | | " + " | ".join(f"{n} documents" for n in sizes) + " |",
        "|---|---|" + "---|" * len(sizes),
    ]
    for question, what in (("causal coverage", "holds"), ("causal claim", "false (bound)")):
        mine = _asked(rates, question)
        for variable, population in dict.fromkeys((r.variable, r.population) for r in mine):
            if question == "causal coverage" and variable.endswith("in total"):
                continue  # the intervals are those of the row before
            cells = []
            for n in sizes:
                (of,) = (
                    r
                    for r in mine
                    if (r.variable, r.population, r.documents) == (variable, population, n)
                )
                is_held_out = of.choosing == "held out"
                shows_before = not (is_held_out or np.isnan(of.before))
                before = f"{_number(of.before)} → " if shows_before else ""
                bound = "" if np.isnan(of.bound) else f" ({_number(of.bound)})"
                cells.append(f"{before}**{_number(of.now)}**{bound}")
            name = f"{variable}, {population.replace(', ', '/')}{'*' * is_held_out}"
            lines.append(f"| {name} | {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[Rates], str]] = {
    "causal": _causal_table,
    "coverage": _coverage_table,
    "claims": _claims_table,
    "sentences": _sentences_table,
    "sets": _sets_table,
    "missed": _missed_table,
    "outside": _outside_table,
    "power": _power_table,
    "front": _front_table,
}


if __name__ == "__main__":
    write_page()
