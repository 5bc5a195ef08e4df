"""A model and a part of it, each loaded for itself: what one changes, the other says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import headscope as hs
from headscope.errors import InputError
from headscope.model.model import Model
from headscope.model.tap.dispatch import Tap
from tests.families.reference import tapped
from tests.model.sharing import N_ROUNDS, family, in_threads, inputs_of, is_silent, state_of


@pytest.mark.parametrize("name", ["llama", "gptj", "bert", "albert"])
def test_a_model_and_its_base_model(name: str) -> None:
    whole = family(name)
    a, b = hs.load(whole), hs.load(whole.base_model)
    assert b.module is not a.module
    inputs = inputs_of(whole)
    plain, _ = tapped(b, inputs)
    heard: list[tuple[int, Tensor | None]] = []
    with a.edit(hs.ablate(1, 2)):
        with a.tapped(lambda attention: heard.append((attention.layer, attention.key_mask))):
            found, _ = tapped(b, inputs)
        assert b.edits == (hs.ablate(1, 2),)
        assert is_silent(found["self"][1], 2)
        assert torch.equal(found["self"][0], plain["self"][0])
        with b.edit(hs.ablate(0, 3)):
            both, _ = tapped(a, inputs)
    assert [layer for layer, _ in heard] == list(range(a.info.n_layers))
    assert all(
        mask is not None and torch.equal(mask, inputs["attention_mask"].bool()) for _, mask in heard
    )
    assert is_silent(both["self"][0], 3)
    assert is_silent(both["self"][1], 2)
    again, _ = tapped(b, inputs)
    assert all(torch.equal(x, y) for x, y in zip(again["self"], plain["self"], strict=True))


def test_a_model_and_its_base_model_in_threads_do_not_wait_forever() -> None:
    """One thread has the part and asks for the whole, the other the whole and then the part."""
    whole = family("llama")
    inputs = inputs_of(whole)
    a, b = hs.load(whole), hs.load(whole.base_model)
    a.info, b.info  # noqa: B018
    before = state_of(whole)

    def job(outer: Model, inner: Model, head: int) -> Callable[[], None]:
        def work() -> None:
            for _ in range(N_ROUNDS):
                with outer.edit(hs.ablate(0, head)):
                    found, _ = tapped(inner, inputs)
                    assert inner.edits == (hs.ablate(0, head),)
                assert is_silent(found["self"][0], head)
                assert not is_silent(found["self"][0], 1 - head)

        return work

    in_threads(job(a, b, 0), job(b, a, 1))
    assert state_of(whole) == before


def test_an_edit_of_an_encoder_is_named_as_the_part_names_it() -> None:
    """What the whole calls `encoder` is `self` in the encoder alone."""
    whole = family("t5")
    a, b = hs.load(whole), hs.load(whole.encoder)
    assert (a.info.blocks, b.info.blocks) == (("encoder", "decoder", "cross"), ("self",))
    ids = {"input_ids": torch.arange(5, 12)[None]}
    with a.edit(hs.ablate(1, 2, block="encoder"), hs.ablate(0, 1, block="decoder")):
        trace = b.trace(ids)
        assert b.edits == (hs.ablate(1, 2, block="self"),)
        assert trace.provenance["edits"] == [repr(edit) for edit in b.edits]
    assert float(trace.attention.sel(layer=1)[2].max()) == 0
    with b.edit(hs.ablate(1, 2)):
        assert a.edits == (hs.ablate(1, 2),)  # in its main block, which is the encoder


def test_one_part_read_in_two_ways_is_refused() -> None:
    whole = family("llama")
    a, b = hs.load(whole), hs.load(whole.base_model)
    assert a.info.route == b.info.route == "interface"
    b._wired.clear()
    watch_only(b)
    with a.tapped(), pytest.raises(InputError, match="is read on another route"), b.tapped():
        pass
    with b.tapped():
        pass


def watch_only(model: Model) -> None:
    """Wire a model by watching its modules, as families with attention of their own are."""
    wired = model._attach()
    watched = replace(wired.wiring, route="fallback")
    tap = Tap(model.module, watched)
    model._wired[frozenset()] = wired._replace(wiring=watched, tap=tap)
