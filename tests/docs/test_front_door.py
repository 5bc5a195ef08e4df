"""The README's first table says what its own lines measure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from studies.effects import FORMS, PAGE, effect_line, over_templates

import headscope as hs
from headscope.model.model import Model

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
NAMES = re.search(r"^names = (\[.*\])$", README, re.MULTILINE)
TEXT = "When {} and John went to the store, John gave a drink to"


def stated(head: str) -> list[float]:
    """A head's effect and its interval, as the table has them."""
    found = re.search(rf"{head}[^|;]*?([−+]\d\.\d\d) \[([−+]\d\.\d\d), ([−+]\d\.\d\d)\]", README)
    assert found is not None
    return [float(number.replace("−", "-")) for number in found.groups()]


@pytest.mark.packaged
def test_the_check_gives_the_interval_of_the_table(smollm2: Model) -> None:
    layer, head = 24, 4
    assert NAMES is not None
    names = re.findall(r'"(\w+)"', NAMES[1])
    texts = [TEXT.format(name) for name in names]
    assert len(names) == 8
    answers = [f" {name}" for name in names]
    check = hs.effects(smollm2, texts, answers, " John", heads=[(layer, head)])
    here = check.sel(layer=layer, head=head)
    measured = [float(here), float(here["low"]), float(here["high"])]
    assert measured == pytest.approx(stated(f"L{layer} H{head}"), abs=0.02)


@pytest.mark.packaged
def test_twelve_sentences_give_the_intervals_of_the_table(smollm2: Model) -> None:
    check = over_templates(smollm2)
    assert check.attrs["templates"] == len(FORMS) == 12
    assert effect_line(check) in PAGE.read_text(encoding="utf-8")
    said = re.sub(r"\*\*", "", effect_line(check)).split(" · ")
    assert all(line in README for line in said)
    low, high = (float(check[bound].sel(layer=24, head=4)) for bound in ("low", "high"))
    assert low < high < 0  # and above 0 over names in one sentence


@pytest.mark.packaged
def test_one_text_is_read_as_the_table_says(smollm2: Model) -> None:
    trace = smollm2.trace(TEXT.format("Mary"), vectors=False)
    last = trace.attention.isel(query=-1)
    mary, john = trace.tokens.index(" Mary"), trace.tokens.index(" John", 4)
    assert float(last.sel(layer=24, head=4)[mary]) == pytest.approx(0.81, abs=0.01)
    assert float(last.sel(layer=23, head=3)[john]) == pytest.approx(0.74, abs=0.01)
    assert "(L24 H4, layer 24 head 4: 0.81 " in README
    assert "(L23 H3: 0.74)" in README
    effect = hs.effects(smollm2, TEXT.format("Mary"), " Mary", " John", heads=[(23, 3)])
    assert float(effect.sel(layer=23, head=3)) == pytest.approx(-3.04, abs=0.02)
    assert "falls by 3.04" in README
