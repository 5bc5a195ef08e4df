"""docs/families.md, from the rows of a sweep."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import transformers

from tests.families.examine import Row

PAGE = Path(__file__).parents[2] / "docs" / "families.md"

N_CELLS, LIVE = 13, 10
"""Cells of a line as `split` gives them, and the place of the column *live*."""

HEADER = """\
# Which models the tap reads

Look up whether your family of models is read, and how. `make families` writes this page. It builds
a tiny model of every family of transformers {version}, from the configuration alone or as
transformers' own tests do (`TESTERS=` names a checkout of them). It compares what the tap reads
with the eager `output_attentions`: on the self-check's input, on a longer one, and on batches
padded left and right. The tests repeat a fixed sample. Every model is checked the same way on
first use: `headscope models NAME` prints the result.

{summary}

- **exact**: attention and output equal the reference bit for bit. If a family returns maps before
  the softmax, their softmax is compared; if it returns one map for all heads, their average.
  **close**: equal to 0.0001. **unverified**: the family returns no maps; the tap reads the weights
  that the values are multiplied with, and edits act.
- **route**: `interface`, the family's own eager function runs inside the tap; `fallback`,
  hand-written attention is watched while it runs (see [design](design.md#the-tap)).
- **blocks**: names of the model's attention blocks.
- **vectors**: queries, keys, values and head outputs can be read, and weights times values are
  the outputs; `some` of them; or `no`.
- **scores**: the softmax of the scores (with the sink logit, if any) is the attention.
  `q·k`: scores are the scaled product under the model's mask; `kept`: scores have more terms,
  and traces keep them; `no`: the family does more to its attention than a softmax.
- **rows**: long texts are read by blocks of query rows, equal to whole layers to 0.0001 (`yes`).
  `plain`: attention is softmax(scale · q·k) under the mask, also for high scores, so that metrics
  compute it in one pass, and gradients by rows. `no`: whole layers, which limits the length; so
  are all models with images or sound. `not tried`: no tiny model from the configuration alone.
- **steps**: attention while generating with a cache equals that of one pass over the whole text
  (`same`); or *the model's own steps differ*, in transformers too, and the tap reads the steps.
- **live**: the exported graph of a [live page](guide/live.md) against the tap, at three lengths,
  without one head of each layer too: the largest difference, of attention or relative to the
  largest output; or `no` and the reason. {live}
- In every family listed, an edit of the last layer acted and was undone. If the model's main output
  did not change (a gate that starts at zero, an encoder whose text it does not use), the output of
  the attention module did.

| family | class | verdict | route | blocks | vectors | scores | rows | steps | live | remarks |
|---|---|---|---|---|---|---|---|---|---|---|
"""
TRIED = "Tried: {} families, of which {} run in a page. Empty: not tried."
"""The sentence of the column *live*."""
REFUSED = """
## Refused

These models load; the tap rejects them with the reason.

| family | reason |
|---|---|
"""
NOT_BUILT = """
## Not tried

A tiny model of these families could not be built and run, neither from the configuration alone nor
by transformers' own tests: {families}.
"""


def page(rows: list[Row]) -> str:
    """The whole page."""
    counts = Counter(row.verdict for row in rows)
    summary = f"Of {len(rows)} families: " + ", ".join(
        f"{n} {verdict}" for verdict, n in counts.most_common()
    )
    read = [line(row) for row in rows if row.verdict in ("exact", "close", "unverified")]
    others = [
        f"| {row.family} | {'' if row.verdict == 'refused' else row.verdict + ': '}{row.detail} |"
        for row in rows
        if row.verdict in ("refused", "unclear", "crash", "wrong")
    ]
    missing = ", ".join(row.family for row in rows if row.verdict == "not built")
    return (
        HEADER.format(
            version=transformers.__version__, summary=f"**{summary}.**", live=TRIED.format(0, 0)
        )
        + "\n".join(read)
        + "\n"
        + REFUSED
        + "\n".join(others)
        + "\n"
        + NOT_BUILT.format(families=missing)
    )


def line(row: Row) -> str:
    """One family's line."""
    cells = [
        row.family,
        row.architecture,
        row.verdict,
        row.route,
        row.blocks,
        row.vectors,
        row.scores,
        row.rows,
        row.generate,
        "",
        "; ".join(filter(None, [_remark(row), row.detail])),
    ]
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def live_column(text: str) -> dict[str, str]:
    """What the page says of each family it reads, in the column *live*."""
    return {cells[1].strip(): cells[LIVE].strip() for cells in _rows(text)}


def with_live_column(text: str, found: dict[str, str]) -> str:
    """The page with this column, and the sentence that counts it."""
    tried = [said for said in found.values() if said]
    exact = sum(not said.startswith("no") for said in tried)
    pattern = re.escape(TRIED).replace(r"\{\}", r"\d+").replace(r"\ ", r"\s+")
    text = re.sub(pattern, TRIED.format(len(tried), exact), text)
    for cells in _rows(text):
        said = found.get(cells[1].strip(), "").replace("|", "/")
        text = text.replace(
            "|".join(cells), "|".join([*cells[:LIVE], f" {said} ", *cells[LIVE + 1 :]])
        )
    return text


def _rows(text: str) -> list[list[str]]:
    """Cells of the families that are read; the first and the last are empty."""
    lines = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    return [cells for cells in lines if len(cells) == N_CELLS and cells[1].strip() != "family"]


def _remark(row: Row) -> str:
    if row.cache == "read without":
        return "its attention depends on use_cache: it is read without"
    return "" if row.edit == "yes" else row.edit.removeprefix("yes, but ") + " changes"
