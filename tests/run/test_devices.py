"""Half precision and other devices, as far as a machine without a GPU can tell."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.run.batches import MAX_WEIGHTS_ELSEWHERE, max_weights
from tests.run.corpora import make_corpus

if TYPE_CHECKING:
    from headscope.model.model import Model

GIGABYTE = 1 << 30


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_read_exactly_and_summed_in_double(
    tiny_llama: Model, dtype: torch.dtype
) -> None:
    corpus = make_corpus(12)
    whole = hs.analyze(tiny_llama, corpus, ["entropy", "distance", "null_share"])
    module = copy.deepcopy(tiny_llama.module).to(dtype)
    half = hs.load(module, tiny_llama.tokenizer)
    assert half.info.check.is_exact
    assert half.wiring.stops is not None
    result = hs.analyze(half, corpus, ["entropy", "distance", "null_share"])
    assert result.provenance["model"]["dtype"] == str(dtype).removeprefix("torch.")
    assert result.states["self"]["distance"]["numerator"].dtype == np.float64
    for name in ("entropy", "distance", "null_share"):
        np.testing.assert_allclose(result[name], whole[name], rtol=0.03, atol=0.01)


def test_batches_follow_the_memory_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_memory(n: int) -> int:
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=n)
        )
        return max_weights(torch.device("cuda"))

    assert with_memory(24 * GIGABYTE) == 1 << 26
    # A little less, as drivers keep some: the same batches, and the same last bits.
    assert with_memory(int(23.6 * GIGABYTE)) == 1 << 26
    assert with_memory(80 * GIGABYTE) == 1 << 28
    assert with_memory(GIGABYTE // 8) == 1 << 20
    assert max_weights(torch.device("cpu")) == 1 << 20
    assert max_weights(torch.device("mps")) == MAX_WEIGHTS_ELSEWHERE
