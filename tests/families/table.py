"""docs/families.md, from the rows of a sweep."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import transformers

from tests.families.examine import Row

PAGE = Path(__file__).parents[2] / "docs" / "families.md"

HEADER = """\
# Which models the tap reads

Made by `make families`, which builds a tiny model of every family of transformers {version}
(where the configuration alone does not do, as transformers' own tests make it: `TESTERS=` names a
checkout of them) and holds what the tap reads against the official eager `output_attentions`: on
the self-check's own input, on a longer one, and on batches padded left and right. The tests run a
fixed sample of it again. Any model is checked the same way when it is first used: `headscope
models NAME` prints what the self-check saw.

{summary}

- **exact**: attention and output are, bit for bit, the official ones (in families that return
  some maps before the softmax, the softmax of those; where one map is returned for all heads,
  their average). **close**: to 0.0001. **unverified**: the family returns no maps; what is read is
  what its values are multiplied with, and edits act.
- **route**: `interface`, the family's own eager function runs inside the tap; `fallback`,
  hand-written attention is watched while it runs (see [design](design.md#the-tap)).
- **blocks**: the attentions of the model, by name.
- **vectors**: queries, keys, values and head outputs can be read, and weights times values are
  the outputs; `some` of them; or `no`.
- **scores**: the softmax of the scores (with the sink's, where there is one) is the attention.
  `q·k`: they are the scaled product under the mask that was used; `kept`: more goes into them,
  and traces keep them; `no`: the family does more to its attention than a softmax.
- **steps**: attention while generating with a cache is that of one pass over the whole text
  (`same`); or *the model's own steps differ*, officially too, and the tap reads the steps.
- An edit of the last layer acted and was undone in every family listed; where the model's main
  output did not change (a gate that starts at zero, an encoder whose text it does not use), the
  attention module's did.

| family | class | verdict | route | blocks | vectors | scores | steps | remarks |
|---|---|---|---|---|---|---|---|---|
"""
REFUSED = """
## Refused

Loading works; reading says why it cannot.

| family | reason |
|---|---|
"""
NOT_BUILT = """
## Not tried

No tiny model of these could be made and run, neither from the configuration alone nor by
transformers' own tests: {families}.
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
        HEADER.format(version=transformers.__version__, summary=f"**{summary}.**")
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
        row.generate,
        "; ".join(filter(None, [_remark(row), row.detail])),
    ]
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _remark(row: Row) -> str:
    if row.cache == "read without":
        return "its attention depends on use_cache: it is read without"
    return "" if row.edit == "yes" else row.edit.removeprefix("yes, but ") + " changes"
