"""The neuron view of models whose scores are more than scale · q·k: the terms still add up."""

from __future__ import annotations

import re
from typing import Any

import pytest

import headscope as hs
from headscope.results.trace import Trace
from tests.conftest import word_piece_tokenizer
from tests.families.zoo import SUPPORTED, build

EQUATION = re.compile(
    r"− \S+ = (?P<dot>\S+)(?: × (?P<scale>\S+) = (?P<scaled>\S+))?"
    r"(?: (?P<bias>[+−]?\S+) bias = (?P<score>\S+))? →"
)


def trace_of(name: str) -> Trace:
    model = hs.load(build(next(m for m in SUPPORTED if m.name == name)), word_piece_tokenizer())
    target = "a red dog" if "decoder" in model.info.blocks else None
    return model.trace("the cat sat on the mat.", target=target)


def number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))


@pytest.mark.parametrize(
    "name", ["bloom", "t5", "gemma2", "gpt_oss", "deberta-v2", "xlnet", "mpnet", "gptj"]
)
def test_terms_add_up_to_the_score(open_page: Any, name: str) -> None:
    trace = trace_of(name)
    query, key, layer, head = 5, 2, 1, 3
    opened = open_page(
        trace, fragment=f"head=L{layer}H{head}&word={query}&key={key}&tab=neurons", neurons=True
    )
    shown = " ".join(opened.page.locator(".worked").inner_text().split())
    found = EQUATION.search(shown)
    assert found is not None, shown
    # What a soft cap takes from scores this small is below what is printed.
    assert (found["bias"] is not None) == ("scores" in trace.main.data and name != "gemma2")
    assert (found["scale"] is None) == (name in ("deberta-v2", "xlnet"))
    total = number(found["scaled"] or found["dot"])
    total += number(found["bias"]) if found["bias"] else 0.0
    expected = float(trace.main.scores.sel(layer=layer, head=head)[query, key])
    assert total == pytest.approx(expected, rel=0.02, abs=0.02)
    weight = float(trace.attention.sel(layer=layer, head=head)[query, key])
    softmax = re.search(r"→ .* = (\S+)\. Neurons", shown)
    assert softmax is not None
    assert number(softmax[1].lstrip("≈")) == pytest.approx(weight, abs=0.0011)
