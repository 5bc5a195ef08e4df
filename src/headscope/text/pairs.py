"""Contrast pairs with their templates: `headscope.pairs`, and JSON lines of pairs.

Two texts of a pair differ in a few words that decide the prediction. Pairs of one template share
the sentence, so templates are the clusters of an interval. Templates of other texts are found by
their words: copies of one another but for a few words. Effects in “When Mary and John went to the
store …” with other names filled in say something about these names. A claim about the construction
needs several sentences of it.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from importlib import resources
from pathlib import Path
from typing import Any, overload

import numpy as np

from headscope.arguments import expect, whole_number
from headscope.atomic import atomic_path
from headscope.errors import FileFormatError, InputError, UnknownName

PairAnswer = str | int | None
FIELDS = ("text", "contrast", "target", "foil", "template")


@dataclass(frozen=True)
class Pairs(Sequence[tuple[str, str]]):
    """Pairs of texts, each with its target, foil and template.

    A sequence of pairs of texts: `headscope.wires` and `headscope.patch` take the other fields
    from it, unless they are given.

    Attributes:
        texts: the pairs.
        targets: answer of each first text; None for its top prediction.
        foils: answer of each second text.
        templates: label of each pair's template.
        name: name of the task or file.
    """

    texts: tuple[tuple[str, str], ...]
    targets: tuple[PairAnswer, ...]
    foils: tuple[PairAnswer, ...]
    templates: tuple[str, ...]
    name: str = "pairs"

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...

    @overload
    def __getitem__(self, index: slice) -> Pairs: ...

    def __getitem__(self, index: int | slice) -> tuple[str, str] | Pairs:
        if isinstance(index, slice):
            targets, foils = self.targets[index], self.foils[index]
            return Pairs(self.texts[index], targets, foils, self.templates[index], self.name)
        return self.texts[index]

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        n = len(set(self.templates))
        return f"<Pairs {self.name!r}: {len(self)} in {n} template{'s' * (n != 1)}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write JSON lines with the fields text, contrast, target, foil and template."""
        rows = zip(self.texts, self.targets, self.foils, self.templates, strict=True)
        with atomic_path(path) as temporary:
            named = (dict(zip(FIELDS, (*texts, *rest), strict=True)) for texts, *rest in rows)
            lines = [f"{json.dumps(row, ensure_ascii=False)}\n" for row in named]
            temporary.write_text("".join(lines), encoding="utf-8")


def read_pairs(path: str | os.PathLike[str]) -> Pairs:
    """Read JSON lines with `text`, `contrast` and, if known, `target`, `foil`, `template`."""
    file = Path(path)
    if not file.is_file():
        raise InputError(f"There is no file {str(file)!r} of pairs.")
    rows: list[dict[str, Any]] = []
    try:
        content = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{file} is not UTF-8 ({error}).") from error
    # JSON may hold other breaks of lines, such as U+2028, as they are.
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise FileFormatError(f"{file}, line {number}: not JSON ({error}).") from error
        both = [row.get(name) for name in FIELDS[:2]] if isinstance(row, dict) else [None]
        if not all(isinstance(text, str) and text for text in both):
            raise FileFormatError(
                f"{file}, line {number}: expected an object with the texts 'text' and 'contrast', "
                f"found {line[:80]!r}."
            )
        for name in ("target", "foil"):
            if not isinstance(row.get(name), str | int | None):
                raise FileFormatError(
                    f"{file}, line {number}: {name!r} should be a token, not {row[name]!r}."
                )
        rows.append(row)
    texts = tuple((row["text"], row["contrast"]) for row in rows)
    labels = [row["template"] for row in rows if "template" in row]
    if 0 < len(labels) < len(rows):
        missing = next(n for n, row in enumerate(rows, 1) if "template" not in row)
        raise FileFormatError(
            f"{file}: pair {missing} has no 'template', others have one. Give all or none."
        )
    labels = labels or find_templates([first for first, _ in texts]).tolist()
    targets, foils = (tuple(row.get(name) for row in rows) for name in ("target", "foil"))
    return Pairs(texts, targets, foils, tuple(map(str, labels)), file.stem)


_DATA = tomllib.loads(
    (resources.files("headscope.text") / "contrast_pairs.toml").read_text("utf-8")
)
TEMPLATES: dict[str, list[str]] = _DATA["templates"]
WORDS = {name: tuple(words.split()) for name, words in _DATA["words"].items()}
CONTRASTS = ("giver", "both")


PairRow = tuple[str, str, str, str]
"""Two texts, and the answer of each."""


def _ioi(template: str, draw: np.random.Generator, names: Sequence[str], contrast: str) -> PairRow:
    first, second = draw.choice(names, 2, replace=False)
    fill = {"p": draw.choice(WORDS["places"]), "t": draw.choice(WORDS["things"])}
    swapped = {"a": second, "b": first} if contrast == "both" else {"a": first, "b": second}
    text = template.format(a=first, b=second, s=second, **fill)
    return text, template.format(**swapped, s=first, **fill), f" {first}", f" {second}"


def _agreement(template: str, draw: np.random.Generator, *_: object) -> PairRow:
    noun, other = draw.choice(WORDS["nouns"]), draw.choice(WORDS["landmarks"])
    forms = [noun, f"{noun}s"]
    verbs = [(" is", " are"), (" was", " were"), (" has", " have")][draw.integers(3)]
    i, j = (0, 1) if draw.integers(2) else (1, 0)
    texts = template.format(n=forms[i], o=other), template.format(n=forms[j], o=other)
    return *texts, verbs[i], verbs[j]


def _pronouns(template: str, draw: np.random.Generator, *_: object) -> PairRow:
    fill = {"p": draw.choice(WORDS["places"]), "t": draw.choice(WORDS["things"])}
    people = [(draw.choice(WORDS["men"]), " he"), (draw.choice(WORDS["women"]), " she")]
    (name, target), (other, foil) = people if draw.integers(2) else people[::-1]
    return template.format(a=name, **fill), template.format(a=other, **fill), target, foil


def _greater(template: str, draw: np.random.Generator, *_: object) -> PairRow:
    fill = {"e": draw.choice(WORDS["events"]), "c": draw.choice(("16", "17", "18"))}
    tens, ones = int(draw.integers(5, 8)), int(draw.integers(2, 9))
    text = template.format(y=f"{tens}{ones}", **fill)
    return text, template.format(y=f"0{ones}", **fill), "8", "2"


def _induction(template: str, draw: np.random.Generator, *_: object) -> PairRow:
    n, at = map(int, template.split())
    words = draw.choice(WORDS["induction"], n, replace=False).tolist()
    swapped = list(words)
    swapped[at], swapped[at + 2] = words[at + 2], words[at]
    text, other = (" ".join(["Words:", *some, words[at]]) for some in (words, swapped))
    return text, other, f" {words[at + 1]}", f" {words[at + 3]}"


TASKS: dict[str, tuple[Sequence[str], Callable[..., PairRow]]] = {
    "ioi": (TEMPLATES["ioi"], _ioi),
    "agreement": (TEMPLATES["agreement"], _agreement),
    "pronouns": (TEMPLATES["pronouns"], _pronouns),
    "greater-than": (TEMPLATES["greater-than"], _greater),
    "induction": ([f"{n} {at}" for n in (8, 9, 10, 11) for at in (1, 3)], _induction),
}


def pairs(
    task: str | os.PathLike[str],
    n: int = 64,
    *,
    names: Sequence[str] | None = None,
    contrast: str = "giver",
    seed: int = 0,
) -> Pairs:
    """Make contrast pairs of a known task, or read them from JSON lines.

    `ioi`: the receiver of a gift (Wang et al. 2023). `agreement`: the number of a verb after a
    phrase. `pronouns`: he or she after a name (Mathwin et al. 2023). `greater-than`: the decade in
    which an event ends (Hanna et al. 2023), for tokenizers that split numbers into digits.
    `induction`: the word that followed an earlier equal one (Olsson et al. 2022).

    Args:
        task: name of a task; or a file of JSON lines with `text`, `contrast` and, if known,
            `target`, `foil` and `template`.
        n: number of pairs, dealt evenly to templates.
        names: names of people, for `ioi`. Texts align if all are equally long in tokens.
        contrast: for `ioi`. `giver` changes who gives; `both` also exchanges the two names.
        seed: seed of the words filled in.

    Returns:
        Pairs with targets, foils and templates.
    """
    expect("task", task, str | os.PathLike, "the name of a task or file")
    if not isinstance(task, str) or task.endswith((".jsonl", ".ndjson")) or Path(task).is_file():
        return read_pairs(task)
    UnknownName.check("task or file of pairs", task, TASKS)
    UnknownName.check("contrast", contrast, CONTRASTS)
    if (names is not None or contrast != "giver") and task != "ioi":
        raise InputError(f"names and contrast are for 'ioi'; {task!r} has its own words.")
    if names is not None and (isinstance(names, str) or not isinstance(names, Iterable)):
        raise InputError(f"names should be a list of names, not {names!r:.60}.")
    people = list(dict.fromkeys(WORDS["men"] + WORDS["women"] if names is None else names))
    if len(people) < 2:
        raise InputError(f"names={names!r} has fewer than two names. Give two or more.")
    templates, make = TASKS[task]
    draw = np.random.default_rng(whole_number("seed", seed, 0))
    rows: list[PairRow] = []
    labels = [templates[i % len(templates)] for i in range(whole_number("n", n))]
    seen: set[tuple[str, str]] = set()
    for template in labels:
        for _ in range(100):
            row = make(template, draw, people, contrast)
            if row[:2] not in seen:
                break
        seen.add(row[:2])
        rows.append(row)
    first, second, targets, foils = zip(*rows, strict=True)
    name = task if contrast == "giver" else f"{task} ({contrast})"
    return Pairs(tuple(zip(first, second, strict=True)), targets, foils, tuple(labels), name)


MIN_SHARED = 0.6
"""Least share of the longer text's words that near-copies have in common, in the same order. Of
pairs of unrelated sentences of GUM with 8 words or more, fewer than 1 in 10,000 have half of them.
With half, “The … the … because” would join 94 of 120 short sentences of WinoBias."""
MAX_WORDS = 64
"""Words of each text that are compared."""
MIN_TEMPLATES = 5
"""Fewer templates are not clusters of an interval."""


def number_templates(texts: Sequence[str], labels: Sequence[object] | None = None) -> np.ndarray:
    """`text`: return the number of each text's template: of its label if given, else as found."""
    if labels is None:
        return find_templates(texts)
    given = list(labels) if isinstance(labels, Iterable) and not isinstance(labels, str) else []
    if len(given) != len(texts) or not all(isinstance(label, Hashable) for label in given):
        raise InputError(f"templates={labels!r:.60} needs a label for each of {len(texts)} texts.")
    return _numbered(given)


def describe_templates(numbers: np.ndarray) -> str:
    """Return in words what an interval over texts of these templates (`text`) speaks of."""
    n_texts, n = len(numbers), len(set(numbers.tolist()))
    speaks, not_of = "the interval speaks of these names in", "not of the construction"
    over = "the interval is over templates"
    if n == 1:
        return f"one template: {speaks} this sentence, {not_of}"
    if n == n_texts:
        few = "" if n >= MIN_TEMPLATES else ", which are few: effects are taken as about normal"
        return f"{n} templates of one text each: {over}{few}"
    texts = f"{n_texts} texts of {n} templates"
    if n >= MIN_TEMPLATES:
        return f"{texts}: {over}"
    return f"{texts}, fewer than {MIN_TEMPLATES}: {speaks} these sentences, {not_of}"


def _numbered(labels: Sequence[object]) -> np.ndarray:
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return np.array([numbers[label] for label in labels], dtype=np.int64)


def find_templates(texts: Sequence[str]) -> np.ndarray:
    """`text`: return the number of each text's template, from 0.

    Texts are near-copies if at least six tenths of the words of the longer one are also in the
    other, in the same order (`difflib`): names, places and things may differ. Near-copies of
    near-copies are of one template.
    """
    words = [tuple(re.findall(r"\w+", text.lower())[:MAX_WORDS]) for text in texts]
    distinct = list(dict.fromkeys(words))
    counts = [Counter(sequence) for sequence in distinct]
    first = list(range(len(distinct)))  # the first near-copy of each
    for later in range(len(distinct)):
        for earlier in range(later):
            if first[earlier] == first[later]:
                continue
            least = MIN_SHARED * max(len(distinct[earlier]), len(distinct[later]), 1)
            common = (counts[earlier] & counts[later]).total()  # at least as many as in order
            if common >= least and _shared(distinct[earlier], distinct[later]) >= least:
                merged, kept = sorted((first[earlier], first[later]), reverse=True)
                first = [kept if number == merged else number for number in first]
    by_words = dict(zip(distinct, first, strict=True))
    return _numbered([by_words[sequence] for sequence in words])


RUN, SKETCH = 3, 16
"""Words of a shingle, and number of a text's shingles that are compared."""
MIN_SHINGLES = 0.4
"""Least share of these that a near-copy has in common with another text. In GUM and EWT, at most
1.6 % of sentences reach it, real copies included; of both sides of WinoBias, 63 %."""


def sketch_of(text: str) -> np.ndarray:
    """Return a sample of a text's shingles: the smallest hashes (Broder 1997)."""
    words = re.findall(r"\w+", text.lower())
    runs = {" ".join(words[i : i + RUN]) for i in range(len(words) - RUN + 1)} or {text}
    return np.array(sorted(zlib.crc32(run.encode()) for run in runs)[:SKETCH], dtype=np.uint32)


def count_copies(sketches: Sequence[np.ndarray], sources: Sequence[int]) -> int:
    """Return the number of texts that are copies or near-copies of an earlier one, which is of
    another source. Each shingle is looked up in the first text that has it.
    """
    if not sketches:
        return 0
    sizes, source = np.array([len(sketch) for sketch in sketches]), np.array(sources)
    text = np.repeat(np.arange(len(sizes)), sizes)
    _, places, numbers = np.unique(np.concatenate(sketches), return_index=True, return_inverse=True)
    first = text[places][numbers]
    is_apart = source[first] != source[text]
    pairs, n = np.unique((text * len(sizes) + first)[is_apart], return_counts=True)
    copies = pairs // len(sizes)
    return len(np.unique(copies[n >= MIN_SHINGLES * sizes[copies]]))


def _shared(left: tuple[str, ...], right: tuple[str, ...]) -> int:
    """Return how many words two texts have in common, in the same order."""
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    return sum(block.size for block in matcher.get_matching_blocks())
