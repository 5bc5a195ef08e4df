"""`trace.measure`: recorded attention, tiny models, encoder-decoders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from headscope.results.trace import Trace
from headscope.run.measure import measure

if TYPE_CHECKING:
    from headscope.model.model import Model


def test_recorded_gpt2_has_the_papers_previous_token_head(data_folder: Path) -> None:
    """Layer 4, head 11 (Vig & Belinkov, Figure 1): one token back, nearly nothing else."""
    recorded = json.loads((data_folder / "gpt2" / "recorded.json").read_text())
    for prompt in recorded:
        trace = Trace.from_arrays(np.array(prompt["attention"]), prompt["tokens"])
        assert trace.main.is_causal
        result = measure(trace)
        assert float(result["distance"].sel(layer=4, head=11)) == pytest.approx(1, abs=0.01)
        assert float(result["entropy"].sel(layer=4, head=11)) < 0.01
        # Of all heads it is the one that is most surely one token away.
        off = np.abs(result["distance"] - 1) + result["entropy"]
        best = off.stack(at=("layer", "head")).idxmin("at").item()  # type: ignore[attr-defined]
        assert best == (4, 11)


def test_tiny_models_of_each_kind(tiny_bert: Model, tiny_llama: Model, tiny_t5: Model) -> None:
    assert float(measure(tiny_bert.trace("the cat sat"))["null_share"].max()) < 1
    assert measure(tiny_llama.trace("the cat"))["distance"].shape == (2, 4)
    result = measure(tiny_t5.trace("the cat sat", target="the dog ran"))
    assert list(result.blocks) == ["encoder", "decoder", "cross"]
    assert "distance" in result.block("decoder")
    assert "distance" not in result.block("cross")  # positions of two texts
    assert "null_share" in result.block("cross")


def test_a_trace_of_one_token() -> None:
    trace = Trace.from_arrays(np.ones((1, 2, 1, 1)), ["a"], is_causal=True)
    result = measure(trace)
    assert float(result["null_share"].mean()) == 1
    assert np.isnan(result["distance"]).all()
    assert (result["entropy_count"] == 0).all()
    assert result.exemplars(0, 0) == []
