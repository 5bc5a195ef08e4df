"""Small things that cost trust: each message and each way in from another tool."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

import headscope as hs
from headscope.errors import HeadscopeWarning, InputError, MetricError, UnknownName, WriteError
from headscope.heads.cards import make_card
from headscope.model.load import load, randomized
from headscope.results.display import counted
from headscope.results.effect_data import EffectArray
from headscope.statistics.intervals import benjamini_hochberg
from tests.conftest import byte_tokenizer
from tests.run.corpora import make_corpus, make_documents

if TYPE_CHECKING:
    from headscope.metrics.core.layer_data import LayerData
    from headscope.model.model import Model

TOKENS = ["a", "b", "c"]


def layers(n: int = 2, heads: int = 2, size: int = 3) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.dirichlet(np.ones(size), (1, heads, size)) for _ in range(n)]


def test_attention_that_sdpa_did_not_return(tiny_llama: Model) -> None:
    model = tiny_llama.module
    before = model.config._attn_implementation
    model.set_attn_implementation("sdpa")
    try:
        outputs = model(torch.tensor([[3, 4, 5]]), output_attentions=True)
    finally:
        model.set_attn_implementation(before)
    attentions = outputs.attentions if outputs.attentions else (None, None)
    if attentions[0] is None:
        with pytest.raises(InputError, match=r'SDPA .*set_attn_implementation\("eager"\)'):
            hs.Trace.from_arrays(attentions, TOKENS)
    with pytest.raises(InputError, match="Layer 1 of the attention is None"):
        hs.Trace.from_arrays([layers()[0], None], TOKENS)


def test_shapes_of_other_tools() -> None:
    given = layers()
    expected = hs.Trace.from_arrays(given, TOKENS).attention.values
    stack = np.stack(given)  # layer, a batch of one, head, query, key
    cache = {f"blocks.{n}.attn.hook_pattern": torch.tensor(x) for n, x in enumerate(given)}
    cache |= {"blocks.0.hook_resid_pre": torch.zeros(1, 3, 4)}
    shuffled = dict(reversed(cache.items()))
    saved = [SimpleNamespace(value=torch.tensor(x)) for x in given]  # as nnsight saves them
    ways: dict[str, Any] = {
        "stack": stack,
        "torch": torch.tensor(stack),
        "mapping": shuffled,
        "cache": SimpleNamespace(cache_dict=shuffled),
        "nnsight": saved,
    }
    for name, attention in ways.items():
        np.testing.assert_array_equal(
            hs.Trace.from_arrays(attention, TOKENS).attention.values, expected, err_msg=name
        )
    with pytest.raises(InputError, match=r"of a batch, choose one text: array\[:, 0\]"):
        hs.Trace.from_arrays(np.repeat(stack, 2, axis=1), TOKENS)
    with pytest.raises(InputError, match=r"no blocks\.0\.attn\.hook_pattern"):
        hs.Trace.from_arrays({"blocks.0.hook_resid_pre": stack}, TOKENS)
    del cache["blocks.0.attn.hook_pattern"]
    with pytest.raises(InputError, match=r"has the layers \[1\]; expected all from 0 on"):
        hs.Trace.from_arrays(cache, TOKENS)


def test_an_own_edit(tiny_llama: Model) -> None:
    text = "the cat sat on the cat"
    seen: list[tuple[int, ...]] = []

    def zero(output: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(output.shape))
        return 0 * output

    with tiny_llama.edit(hs.ablate(0, 1)):
        expected = tiny_llama.trace(text)
    with tiny_llama.edit(hs.edit(zero, 0, 1)):
        trace = tiny_llama.trace(text)
    plain = tiny_llama.trace(text)
    assert seen == [(1, len(trace.tokens), tiny_llama.info.head_size)]
    for mine, theirs in ((trace, expected),):
        np.testing.assert_array_equal(mine.hidden.values[-1], theirs.hidden.values[-1])
    assert not np.array_equal(plain.hidden.values[-1], expected.hidden.values[-1])
    assert trace.provenance["changed"] == "L0 H1 output by zero"
    with tiny_llama.edit(hs.edit(lambda z: z, 1, 0)):
        same = tiny_llama.trace(text)
    np.testing.assert_array_equal(same.hidden.values[-1], plain.hidden.values[-1])


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda z: z[:, :1], r"returned the shape \(1, 1, .*expected \(1, "),
        (lambda z: z / 0, "returned NaN or infinity"),
        (lambda z: None, "returned NoneType; expected a torch tensor"),
    ],
)
def test_an_own_edit_is_checked(tiny_llama: Model, function: Any, words: str) -> None:
    with tiny_llama.edit(hs.edit(function, 1, 0)), pytest.raises(InputError, match=words):
        tiny_llama.trace("the cat sat")
    with pytest.raises(InputError, match="should be a function"):
        hs.edit(3, 1, 0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="head"), tiny_llama.edit(hs.edit(function, 1, 99)):
        pass


def test_a_torch_hook_fires_in_a_trace(tiny_llama: Model) -> None:
    """As docs/guide/editing.md says."""
    module, calls = tiny_llama.module.model.layers[0].self_attn.o_proj, []
    hook = module.register_forward_hook(lambda *_: calls.append(1))
    tiny_llama.trace("the cat")
    hook.remove()
    assert calls


def test_a_page_needs_its_folder(tmp_path: Path) -> None:
    trace = hs.Trace.from_arrays(layers(), TOKENS)
    with pytest.raises(WriteError, match="there is no folder"):
        trace.save_page(tmp_path / "missing" / "page.html")
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_tokenizer_without_a_length(is_missing: bool) -> None:
    tokenizer = byte_tokenizer()
    if is_missing:
        del tokenizer.model_max_length
    else:
        tokenizer.model_max_length = None  # type: ignore[assignment]
    config = GPT2Config(vocab_size=264, n_embd=8, n_layer=1, n_head=2, n_positions=32)
    model = hs.load(GPT2LMHeadModel(config).eval(), tokenizer)
    assert model.info.max_length == 32
    assert len(model.trace("the cat").tokens) > 1


def test_a_meta_model_is_refused() -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(GPT2Config(n_embd=8, n_layer=1, n_head=2))
    with pytest.raises(InputError, match=r"on the device 'meta' \(transformer\.wte\.weight\)"):
        load(model)


def test_a_path_is_not_a_name(tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=264, n_embd=8, n_layer=1, n_head=2, n_positions=32)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "tuned")
    live = GPT2LMHeadModel.from_pretrained(tmp_path / "tuned")
    assert hs.load(live, byte_tokenizer()).name == "tuned"


def test_many_unknown_tokens_are_said(tiny_bert: Model) -> None:
    with pytest.warns(HeadscopeWarning, match=r"5 of 7 tokens are \[UNK\]"):
        tiny_bert.trace("Ein Hund läuft durch Straßen")
    tiny_bert.trace("the cat sat on the mat xyz")  # one of many


def test_a_wrong_option_names_the_right_one(tiny_bert: Model) -> None:
    with pytest.raises(UnknownName, match=r"Unknown option of trace 'effect'.*'effects'"):
        tiny_bert.trace("the cat", effect=True)  # type: ignore[call-overload]


def test_a_large_trace_says_what_it_keeps(
    tiny_bert: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.model.tracing.LARGE", 100)
    with pytest.warns(HeadscopeWarning, match=r"5 tokens × 8 heads: .* GB of attention are kept"):
        tiny_bert.trace("the cat sat")


def test_one_document_is_not_plural(tiny_bert: Model) -> None:
    assert [counted(n) for n in (0, 1, 2, 2001)] == [
        "0 documents", "1 document", "2 documents", "2,001 documents"
    ]  # fmt: skip
    result = hs.analyze(tiny_bert, make_corpus(1))
    texts = [repr(result), str(make_card([result], 0, 0))]
    shown: list[Any] = result.figure("vb-5").findobj(match=_is_text)
    texts += [text.get_text() for text in shown]
    assert not any("1 documents" in text for text in texts)
    assert any("1 document" in text for text in texts)


def _is_text(artist: Any) -> bool:
    return hasattr(artist, "get_text")


def test_effects_print_as_a_table(tiny_llama: Model) -> None:
    texts = ["the cat sat on the", "a dog ran under the", "the red house and the"]
    effects = hs.effects(tiny_llama, texts)
    assert isinstance(effects, EffectArray)
    table = effects.table()
    values = effects.values.ravel()
    assert [row["effect"] for row in table.rows] == sorted(values, key=lambda v: -abs(v))
    adjusted = benjamini_hochberg(effects["p"].values)
    for row in table.records():
        at = {"layer": row["layer"], "head": row["head"]}
        assert type(row["layer"]) is int
        assert row["low"] == float(effects["low"].sel(at))
        place = np.ravel_multi_index((int(row["layer"]), int(row["head"])), effects.shape)
        assert row["p_adjusted"] == adjusted.ravel()[place]
    printed = str(effects)
    first = table.rows[0]
    assert f"L{first['layer']} H{first['head']}" in printed
    assert "n = 3 texts" in printed
    latex = effects.to_latex(2)
    assert latex.count(r"\\") == 3
    assert "Benjamini--Hochberg over 8" in latex
    assert isinstance(effects * 2, EffectArray)  # arithmetic as before
    assert float(effects.max()) == values.max()


def test_parts_of_effects_print_too(tiny_llama: Model) -> None:
    effects = hs.effects(tiny_llama, ["the cat sat on the", "a dog ran under the", "the red"])
    assert str(effects.sel(layer=1)).count("L1 H") == 4
    assert "EffectArray" in str(effects.sel(layer=1, head=0))  # one number: as xarray prints it
    contributions = hs.attribute(tiny_llama, "the cat sat on the")
    printed = str(contributions)
    largest = contributions["component"].values[int(np.abs(contributions.values).argmax())]
    assert printed.splitlines()[2].startswith(str(largest))


def test_comparisons_have_tables(tiny_bert: Model) -> None:
    corpus, other = make_corpus(40), randomized(tiny_bert, 3)
    data = hs.analyze(tiny_bert, corpus).compare(hs.analyze(other, corpus))
    table = data.table("null_share")
    assert len(table) == 8
    for row in table.records():
        at = {"layer": row["layer"], "head": row["head"]}
        assert row["null_share"] == float(data["null_share"].sel(at))
        assert row["p_adjusted"] == float(data["null_share_p_adjusted"].sel(at))
        low, high = data["null_share_interval"].sel(at).values
        assert (row["low"], row["high"]) == (low, high)
    marked = sum(row["p_adjusted"] < 0.05 for row in table.records())
    assert data.to_latex("null_share", None).count("*") == marked + 1  # and in the caption
    assert "corrected over 8 numbers (Benjamini \\& Hochberg 1995)" in data.to_latex("null_share")
    nouns = data.table("pos_to", tag="NOUN")
    assert len(nouns) <= 8
    assert "tag" not in nouns.records()[0]
    with pytest.raises(UnknownName, match="null_share"):
        data.table("nul_share")


@dataclass(frozen=True)
class Broken(hs.RatioMetric):
    """A metric that is being written."""

    name = "broken"
    paper = "none"
    units = "share of attention"

    def rows(self, layer_data: LayerData) -> Any:
        return layer_data.weights.no_such_method()  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Working(hs.RatioMetric):
    """Attention to the first token; its count is one number for each document."""

    name = "working"
    paper = "none"
    units = "share of attention"

    def rows(self, layer_data: LayerData) -> Any:
        weights = layer_data.weights.double()
        mask = torch.from_numpy(layer_data.queries.mask).double()
        rows = weights * mask[:, None, :, None]
        return rows[..., 0].sum(-1), rows.sum((-1, -2)), mask.sum(-1)


def test_an_error_of_a_metric_is_short(tiny_bert: Model) -> None:
    with pytest.raises(MetricError, match="The metric broken failed: AttributeError") as caught:
        hs.analyze(tiny_bert, make_corpus(3), Broken(), workers=1)
    shown = "".join(traceback.format_exception(caught.value))
    assert "no_such_method" in shown
    assert "transformers/models" not in shown
    assert shown.count("  File ") < 12


def test_a_count_may_be_one_for_all_heads(tiny_bert: Model) -> None:
    result = hs.analyze(tiny_bert, make_corpus(6), Working())
    expected = sum(len(tiny_bert.trace(d.text).tokens) for d in make_documents(6))
    assert (result["working_count"] == expected).all()


def test_an_unfinished_run_of_an_older_metric_is_set_aside(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = make_corpus(6)
    with pytest.raises(MetricError):
        hs.analyze(tiny_bert, corpus, Broken(), out=tmp_path, workers=1)
    assert (tmp_path / "plan.json").is_file()

    @dataclass(frozen=True)
    class Repaired(Working):
        """The same metric, repaired."""

        name = "broken"

    with pytest.warns(HeadscopeWarning, match="unfinished run with an older version of a metric"):
        result = hs.analyze(tiny_bert, corpus, Repaired(), out=tmp_path, workers=1)
    assert (tmp_path / "plan.json.older").is_file()
    again = hs.analyze(tiny_bert, corpus, Repaired(), out=tmp_path, workers=1)
    assert np.array_equal(again["broken"].values, result["broken"].values)


def test_absent_tags_are_harmless(tiny_bert: Model) -> None:
    """`batch.axes.tags` is empty without tags, and every token has the tag −1."""
    seen: list[tuple[tuple[str, ...], bool]] = []

    @dataclass(frozen=True)
    class Tagged(Working):
        """A metric that looks at tags."""

        name = "tagged"

        def rows(self, layer_data: LayerData) -> Any:
            tags = layer_data.batch.axes.tags
            seen.append((tags, bool((layer_data.queries.tags == -1).all())))
            return super().rows(layer_data)

    hs.analyze(tiny_bert, ["the cat sat", "the dog ran"], Tagged(), workers=1)
    assert set(seen) == {((), True)}
