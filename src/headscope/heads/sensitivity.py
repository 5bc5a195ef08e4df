"""`headscope.sensitivity`: findings of an analysis under other choices of the analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from headscope.batch import NullKeys
from headscope.errors import HeadscopeError, warn
from headscope.heads.replication import Measured, TestedFindings, claims_of, tested
from headscope.model.load import load
from headscope.model.model import Model
from headscope.results.result import Result
from headscope.run.analyze import analyze
from headscope.run.batches import cut_segments
from headscope.run.options import RunOptions, with_defaults
from headscope.text.corpus import Corpus
from headscope.text.document import Unit
from headscope.text.readers.read import Readable, as_corpus

UNITS: tuple[Unit, ...] = ("sentence", "paragraph")
SEGMENT = 128
"""Tokens of a segment, as in Clark et al. (2019)."""


def sensitivity(
    model: Model | str,
    corpus: Corpus | Readable,
    names: Sequence[str] | None = None,
    *,
    n: int | None = 3,
    **options: Unpack[RunOptions],
) -> TestedFindings:
    """Return which findings of an analysis depend on choices of the analysis.

    The corpus is measured as given (`base`), by sentence, by paragraph and in segments of 128
    tokens, with the other rule for null keys, and in two random halves (of a sample: with another
    seed). `equal weights` is the base run with each bucket of documents weighed alike; a bucket
    has one document in corpora of few. All runs read the same texts, so a finding that holds
    under every choice is robust, but not replicated (`Result.replicates`).

    Args:
        model: the model, or a source for `headscope.load`.
        corpus: the documents, or a source for `headscope.read`.
        names: variables, as in `Result.replicates`.
        n: number of heads of each list; None for all.
        options: as for `headscope.analyze`; each run has a folder of its own in `out`.
    """
    loaded, given = load(model) if isinstance(model, str) else model, as_corpus(corpus)
    out = options.pop("out", None)

    def run(name: str, corpus: Corpus, null_keys: NullKeys) -> Result:
        folder = None if out is None else Path(out) / name.replace(" ", "-")
        return analyze(loaded, corpus, **with_defaults(options, null_keys=null_keys, out=folder))

    rule = options.pop("null_keys", "auto")
    base = run("base", given, rule)
    is_first = rule == "first" or (rule == "auto" and base.provenance["model"]["is_causal"])
    corpora: dict[str, Corpus] = {unit: given.by(unit) for unit in UNITS if unit != given.unit}
    corpora[f"{SEGMENT} tokens"] = cut_segments(loaded, given.by("document"), SEGMENT)
    corpora["other null keys"] = given
    if given.sample_size is None:
        half = max(base.n_documents // 2, 1)
        corpora |= {f"half {seed}": given.sample(half, seed) for seed in (0, 1)}
    else:
        corpora["other seed"] = replace(given, seed=given.seed + 1)
    measured = {"base": Measured(base), "equal weights": Measured(base, is_equal=True)}
    for name, variant in corpora.items():
        other: NullKeys = ("special" if is_first else "first") if "null" in name else rule
        try:
            measured[name] = Measured(run(name, variant, other))
        except HeadscopeError as error:
            warn(f"Left out: {name}. {error}")
    claims = claims_of(measured["base"], names, n)
    columns = zip(*(tested(claims, each) for each in measured.values()), strict=True)
    rows = tuple(zip(claims, columns, strict=True))
    title = f"{base.title}, {len(measured) - 1} other choices"
    return TestedFindings(title, tuple(measured), rows)
