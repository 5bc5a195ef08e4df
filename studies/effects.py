"""What docs/effects.md shows: who receives, and what a job says of a pronoun.

    python -m studies.effects --data FOLDER

Indirect objects (Wang et al. 2023) on 24 texts; WinoBias's sentences up to their pronoun, with the
two jobs exchanged.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import xarray as xr

import headscope as hs
from headscope.figures.style import GRAY, new_figure, styled
from headscope.model.model import Model
from studies.probing_page import MARK

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "effects.md"
FIGURE = ROOT / "docs" / "figures" / "smollm2-ioi.png"
PAIR_SHARES = ROOT / "docs" / "data" / "effects-pairs.csv"
NAMES = (("Mary", "John"), ("Anna", "Tom"), ("Sarah", "Paul"), ("Emma", "James"))
PLACES = (
    ("store", "a drink"),
    ("park", "a book"),
    ("station", "a ticket"),
)
TOP = 6
EXACT = 16
"""Heads that are measured exactly, those that an estimate ranks first."""
PAIRS = 120
"""Of WinoBias."""
STUDIES = ("templates", "objects", "patched", "pairs", "nurse", "jobs")
FORMS = (
    "When {a} and {b} went to the store, {b} gave a drink to",
    "After {a} and {b} finished dinner, {b} handed the bill to",
    "While {a} and {b} were working at the office, {b} sent an email to",
    "Then {a} and {b} had a long argument. Afterwards {b} said sorry to",
    "Yesterday {a} met {b} in the park, and {b} lent a book to",
    "{a} and {b} had lunch at the school. {b} passed the salt to",
    "At the party, {a} sat beside {b}, so {b} told a joke to",
    "{a} was sick, so {b} brought some soup to",
    "Because {a} helped {b} with the garden, {b} offered a reward to",
    "Last summer {a} visited {b} in Paris, where {b} showed the museum to",
    "The friends {a} and {b} found a kitten, but {b} left it to",
    "{a} asked {b} for money, and in the end {b} paid ten dollars to",
)
"""Templates of one construction, written before any was measured; all are kept."""
READERS = ((23, 3), (24, 4))
"""The heads of README: one reads the giver, one the receiver."""
HAPPENED = (
    "The {a} asked the {b} a question.",
    "The {a} met the {b} in the hall.",
    "The {a} talked to the {b} about a patient.",
    "The {a} worked with the {b} all night.",
    "The {a} called the {b} this morning.",
    "The {a} had lunch with the {b}.",
)
"""Before “She is the”; the doctor and the nurse are named in either order."""
FOUR = ((23, 3), (17, 4), (20, 0), (29, 1))
"""Heads whose shares are compared between kinds of pairs."""
KINDS = {
    "When {a} and {b}, {b} gave ← {a} gave": ("{a} and {b}", "{a} and {b}", "{a}"),
    "When {b} and {a}, {b} gave ← {a} gave": ("{b} and {a}", "{b} and {a}", "{a}"),
    "After {b} and {a}, {b} gave ← {a} gave": ("{b} and {a}", "{b} and {a}", "{a}"),
    "When {a} and {b}, {b} gave ← {c} gave": ("{a} and {b}", "{a} and {b}", "{c}"),
    "When {b} and {a}, {b} gave ← {c} gave": ("{b} and {a}", "{b} and {a}", "{c}"),
    "When {a} and {b}, {b} gave ← {b} and {a}, {a} gave": ("{a} and {b}", "{b} and {a}", "{a}"),
}
"""By what is exchanged: who is named in the one text, who in the other, and who gives there."""
THIRD = "Lisa"


def main() -> None:
    """Measure, draw, and write the tables into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with winobias/, for jobs")
    parser.add_argument("--only", choices=STUDIES, nargs="*", default=STUDIES)
    options = parser.parse_args()
    if options.data is None and "jobs" in options.only:
        parser.error("jobs needs --data")
    model = hs.load("smollm2")
    tables: dict[str, str] = {}
    if "templates" in options.only:
        tables["templates"] = effect_line(over_templates(model))
    if "objects" in options.only:
        found = indirect_objects(model)
        with styled():
            draw(found).savefig(FIGURE, dpi=150)
        tables["objects"] = effect_line(found)
    if "patched" in options.only:
        tables["patched"] = share_line(exchanged_names(model))
    if "pairs" in options.only:
        with PAIR_SHARES.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(pair_shares(model))
    if "nurse" in options.only:
        tables["nurse"] = share_line(exchanged_pronouns(model))
    if "jobs" in options.only:
        jobs = exchanged_jobs(model, options.data / "winobias")
        tables["jobs"] = share_line(jobs)
    text = PAGE.read_text(encoding="utf-8")
    text = MARK.sub(lambda mark: _filled(mark, tables), text)
    PAGE.write_text(text, encoding="utf-8")


def _filled(mark: re.Match[str], tables: Mapping[str, str]) -> str:
    """A table of the page, anew where it was measured."""
    return f"{mark[1]}{tables[mark[2]]}{mark[3]}" if mark[2] in tables else mark[0]


def _sentences() -> list[tuple[str, str, str, str]]:
    """Text, who receives, who gives, and the text in which they change places."""
    made = []
    for (first, second), (place, thing) in product(NAMES, PLACES):
        for a, b in ((first, second), (second, first)):
            start = f"When {a} and {b} went to the {place}, "
            given = f" gave {thing} to"
            made.append((f"{start}{b}{given}", a, b, f"{start}{a}{given}"))
    return made


def over_templates(model: Model) -> xr.DataArray:
    """The effects of two heads over twelve sentences, each with either of two receiving."""
    named = [(form, *who) for form in FORMS for who in (NAMES[0], NAMES[0][::-1])]
    texts = [form.format(a=a, b=b) for form, a, b in named]
    receivers, givers = ([f" {row[i]}" for row in named] for i in (1, 2))
    labels = [form for form, _, _ in named]
    return hs.effects(model, texts, receivers, givers, heads=READERS, templates=labels)


def indirect_objects(model: Model) -> xr.DataArray:
    """The effect of every head on logit(receiver) − logit(giver), over all texts."""
    texts, receivers, givers, _ = zip(*_sentences(), strict=True)
    return hs.effects(
        model, list(texts), [f" {name}" for name in receivers], [f" {name}" for name in givers]
    )


def exchanged_names(model: Model) -> xr.Dataset:
    """The share of the gap between a text and the one in which the giver is the other."""
    texts, receivers, givers, others = zip(*_sentences(), strict=True)
    pairs = list(zip(texts, others, strict=True))
    targets, foils = ([f" {name}" for name in names] for names in (receivers, givers))
    return hs.patch(model, pairs, targets, foils, exact=EXACT)


def pair_shares(model: Model) -> Iterator[list[str]]:
    """What four heads carry, by the kind of pair: eight texts each, at the store."""
    yield ["text ← where its heads come from", *(f"L{layer} H{head}" for layer, head in FOUR)]
    place, thing = PLACES[0]
    for kind, names in KINDS.items():
        form = f"{kind.split()[0]} {{}} went to the {place}, {{}} gave {thing} to"
        pairs, targets, foils = [], [], []
        for a, b in (*NAMES, *((b, a) for a, b in NAMES)):
            named, others, giver = (name.format(a=a, b=b, c=THIRD) for name in names)
            pairs.append((form.format(named, b), form.format(others, giver)))
            targets.append(f" {a}")
            foils.append(f" {b}")
        share = hs.patch(model, pairs, targets, foils, heads=FOUR)["share"]
        first = kind.format(a=NAMES[0][0], b=NAMES[0][1], c=THIRD)
        yield [first, *(f"{float(share.sel(layer=layer, head=head)):.2f}" for layer, head in FOUR)]


def exchanged_pronouns(model: Model, heads: Sequence[tuple[int, int]] | None = None) -> xr.Dataset:
    """The share of the gap between “She is the” and “He is the”, for the nurse against the
    doctor.
    """
    pairs = []
    for sentence, (a, b) in product(HAPPENED, (("doctor", "nurse"), ("nurse", "doctor"))):
        start = sentence.format(a=a, b=b)
        pairs.append((f"{start} She is the", f"{start} He is the"))
    return hs.patch(model, pairs, " nurse", " doctor", exact=EXACT, heads=heads)


def exchanged_jobs(model: Model, folder: Path) -> xr.Dataset:
    """The same for “he” against “she” when two jobs change places."""
    pairs = list(_with_jobs_exchanged(folder / "dev_type1_pro_stereotype.v4_auto_conll"))
    assert model.tokenizer is not None
    lengths = [[len(model.tokenizer(text)["input_ids"]) for text in pair] for pair in pairs]
    equal = [pair for pair, (a, b) in zip(pairs, lengths, strict=True) if a == b]
    chosen = np.linspace(0, len(equal) - 1, PAIRS).round().astype(int)
    return hs.patch(model, [equal[i] for i in chosen], " he", " she", exact=EXACT)


def _with_jobs_exchanged(path: Path) -> Iterator[tuple[str, str]]:
    """Each sentence up to its “he” or “she”, and the same with its first two jobs exchanged."""
    for document in hs.read(path):
        words = list(document.words)
        pronoun = next((n for n, word in enumerate(words) if word in ("he", "she")), 0)
        before = words[:pronoun]
        jobs = [n + 1 for n, word in enumerate(before[:-1]) if word.lower() in ("the", "a")][:2]
        if len(jobs) == 2:
            other = list(before)
            other[jobs[0]], other[jobs[1]] = other[jobs[1]], other[jobs[0]]
            yield " ".join(before), " ".join(other)


def effect_line(effects: xr.DataArray) -> str:
    """The heads whose removal moves the number most, with their intervals."""
    sizes = np.nan_to_num(np.abs(effects.values))
    listed = []
    for place in np.argsort(-sizes, axis=None)[: min(TOP, (sizes > 0).sum())]:
        row, column = np.unravel_index(place, sizes.shape)
        here = effects.isel(layer=row, head=column)
        low, high = (f"{float(here[bound]):+.2f}" for bound in ("low", "high"))
        name = f"L{int(here['layer'])} H{int(here['head'])}"
        listed.append(f"{name} **{float(here):+.2f}** [{low}, {high}]")
    return " · ".join(listed).replace("-", "−")


def share_line(patched: xr.Dataset) -> str:
    """The heads that carry most of the gap, each measured exactly."""
    shares = patched["share"].to_series().dropna().sort_values(key=abs, ascending=False)
    listed = []
    for layer, head in shares[:TOP].index:
        here = patched.sel(layer=layer, head=head)
        share, low, high = (f"{float(here[name]):.2f}" for name in ("share", "low", "high"))
        listed.append(f"L{layer} H{head} **{share}** [{low}, {high}]")
    return " · ".join(listed).replace("-", "−").replace("−0.00", "0.00")


def draw(effects: xr.DataArray):  # type: ignore[no-untyped-def]
    """Every head of the model; a ring where the interval leaves 0 out."""
    figure = new_figure(7.2, 2.6)
    axes = figure.subplots()
    values = effects.transpose("head", "layer").values
    limit = float(np.abs(values).max())
    image = axes.imshow(values, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto")
    low, high = (effects[bound].transpose("head", "layer").values for bound in ("low", "high"))
    heads, layers = np.nonzero((low > 0) | (high < 0))
    strong = np.abs(values[heads, layers]) > limit / 10
    axes.scatter(layers[strong], heads[strong], s=30, facecolors="none", edgecolors=GRAY, lw=0.8)
    axes.set_xlabel("layer")
    axes.set_ylabel("head")
    figure.colorbar(image, ax=axes, label="without − with")
    return figure


if __name__ == "__main__":
    main()
