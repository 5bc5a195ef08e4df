"""The table of families in docs/families.md, from a run of the self-check over the zoo.

python -m tests.families.table > docs/families.md
"""

from __future__ import annotations

from transformers.utils import logging

import headscope as hs
from headscope.errors import TapUnsupported
from headscope.model.info import ModelInfo
from tests.families.zoo import REFUSED, SUPPORTED, build

HEADER = """\
# Which models the tap reads

Made by `python -m tests.families.table`, which builds a tiny model of each family and runs
the self-check; the tests compare this page with a fresh run. Any other family is found out
the same way when it is loaded: `headscope models NAME` prints what the self-check saw.

- **route**: `interface`, the family's own eager function runs inside the tap; `fallback`,
  hand-written attention is watched while it runs (see [design](design.md#the-tap)).
- **exact**: attention and output are, bit for bit, those of transformers' official eager
  `output_attentions`. Two families return some maps before the softmax; there the softmax of
  the official scores is compared, also bit for bit.
- **vectors**: queries, keys, values and head outputs can be read. **edit q, k**: their neurons
  can be scaled; not where scores are the sum of several products.
- **scores**: `q·k` where a score is the scaled product (and a mask) alone; `more` where a
  position bias, a soft cap, a sink or a second product adds to it, and traces record the
  scores themselves.

| family | class | route | exact | vectors | edit q, k | scores |
|---|---|---|---|---|---|---|
"""
REFUSED_HEADER = """
## Refused

These have no attention matrix to read; loading works, tracing says why it cannot.

| family | reason |
|---|---|
"""


def row(name: str, model: hs.Model) -> str:
    """One family's line."""
    info: ModelInfo = model.info
    main = model.wiring.of_block(model.wiring.main_block())
    exact = "yes" if info.check.is_exact else f"yes, {_why_not(info)}"
    vectors = "yes" if info.has_vectors else "values" if main[0].value_size else "no"
    cells = [
        name,
        info.architecture,
        info.route,
        exact,
        vectors,
        "yes" if main[0].can_edit_vectors else "no",
        "q·k" if all(site.is_dot_product for site in main) else "more",
    ]
    return f"| {' | '.join(cells)} |"


def _why_not(info: ModelInfo) -> str:
    if info.check.against == "scores" and info.check.largest_difference == 0:
        return "of scores"
    raise AssertionError(f"{info.family} is not exact: {info.check}")


def table() -> str:
    """The whole page."""
    rows = [row(member.name, hs.load(build(member))) for member in SUPPORTED]
    refused = []
    for member in REFUSED:
        try:
            hs.load(build(member)).info  # noqa: B018
        except TapUnsupported as error:
            reason = str(error).partition(": ")[2].rstrip(".")
            refused.append(f"| {member.name} | {reason} |")
    return HEADER + "\n".join(rows) + "\n" + REFUSED_HEADER + "\n".join(refused) + "\n"


if __name__ == "__main__":
    logging.set_verbosity_error()
    print(table(), end="")
