"""The widget without a notebook, and BertViz's functions."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headscope as hs
from headscope.errors import InputError, MissingExtra, UnknownName
from headscope.model.model import Model
from headscope.page.replies import replies_for
from headscope.results.trace import Trace
from tests.conftest import word_piece_tokenizer
from tests.families.zoo import ENCODER_DECODERS, build
from tests.page.golden_payload import golden_trace


def test_without_anywidget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "headscope.page.widget", raising=False)
    with pytest.raises(MissingExtra, match=r'pip install "headscope\[widget\]"'):
        golden_trace().explore()


def test_not_a_trace() -> None:
    with pytest.raises(InputError, match="A Trace is needed, not list"):
        golden_trace().explore([1, 2])  # type: ignore[arg-type]


@pytest.fixture
def _anywidget() -> None:
    pytest.importorskip("anywidget", reason="anywidget is not installed")


@pytest.mark.usefixtures("_anywidget")
def test_views_open_where_they_should(tmp_path: Path) -> None:
    trace = golden_trace()
    assert trace.explore().selection == "head=L0H1&word=2"
    head = trace.explore(view="head", layer=1, heads=[0])
    assert head.selection == "head=L1H0&tab=lines"
    made = trace.explore(view="neuron", layer=0, heads=1, queries=2)
    assert made.selection == "head=L0H1&word=2&tab=neurons"
    with pytest.raises(UnknownName, match=r"Unknown view 'neurons'\. Did you mean 'neuron'"):
        trace.explore(view="neurons")  # type: ignore[arg-type]
    made.selection = "head=L1H0"
    made.save(tmp_path / "page.html")
    assert '"selection":"head=L1H0"' in (tmp_path / "page.html").read_text("utf-8")


def test_a_page_opens_where_it_should(tmp_path: Path) -> None:
    trace = golden_trace()
    trace.save_page(tmp_path / "page.html", trace, view="neuron", layer=1, titles=["x", "y"])
    page = (tmp_path / "page.html").read_text("utf-8")
    assert '"selection":"head=L1H0&tab=neurons"' in page
    assert '"title":"x"' in page
    assert '"title":"y"' in page


@pytest.mark.usefixtures("_anywidget")
def test_the_kernel_answers_with_exact_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = golden_trace().explore()
    sent: list[Any] = []
    monkeypatch.setattr(explorer, "send", lambda content, buffers: sent.append((content, buffers)))
    row = {"kind": "row", "id": 7, "trace": 0, "block": "self", "layer": 1, "head": 0, "query": 2}
    explorer._answer(None, row, None)
    explorer._answer(None, {**row, "layer": 9}, None)
    explorer._answer(None, {"kind": "other", "id": 8}, None)
    explorer._answer(None, {"kind": "edit", "id": 9, "edits": []}, None)
    explorer._answer(None, {"kind": "neurons", "id": 10, "trace": 0, "layer": 1}, None)
    contents = [content for content, _ in sent]
    assert contents[0] == {"id": 7, "found": True}
    assert contents[1]["error"] == "layer should be a whole number from 0 to 1, not 9."
    assert "Unknown request 'other'" in contents[2]["error"]
    assert "Trace the text once more with model.trace(text)" in contents[3]["error"]
    assert contents[4]["part"]["layer"] == 1
    assert len(sent[4][1]) == 4
    np.testing.assert_array_equal(
        np.frombuffer(sent[0][1][0], dtype="<f4"), np.float32([0.123, 0.456, 0.421])
    )


@pytest.mark.usefixtures("_anywidget")
def test_the_kernel_runs_the_model_again(
    tiny_llama: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    explorer = tiny_llama.trace("the cat sat").explore()
    assert json.loads(explorer.header)["place"] == "notebook"
    sent: list[Any] = []
    monkeypatch.setattr(explorer, "send", lambda content, buffers: sent.append(content))
    off = {"kind": "off", "layer": 1, "head": 2}
    explorer._answer(None, {"kind": "edit", "id": 1, "edits": [off]}, None)
    explorer._answer(None, {"kind": "effects", "id": 2, "trace": 0, "position": None}, None)
    place = {"layer": 1, "head": 2, "query": 3, "key": 1}
    explorer._answer(None, {"kind": "score", "id": 3, "trace": 0, **place}, None)
    assert sent[0]["traces"][0]["changed"] == "without L1 H2"
    assert len(sent[1]["effects"]["candidates"]) == 10
    assert sent[2]["total"] == pytest.approx(sum(p["key_side"] for p in sent[2]["parts"]), abs=1e-3)


def test_effects_are_of_the_block_that_is_shown() -> None:
    bart = next(member for member in ENCODER_DECODERS if member.name == "bart")
    trace = hs.load(build(bart), word_piece_tokenizer()).trace("the cat sat", target="the dog")
    replies = replies_for([trace])
    tables = {}
    for block in (None, "encoder", "cross"):
        answer, _ = replies.reply("effects", {"trace": 0} | ({"block": block} if block else {}))
        assert "error" not in answer
        effects = replies.traces[0].effects
        assert effects is not None
        tables[block] = effects.data["after"].values
    np.testing.assert_array_equal(tables[None], tables["encoder"])
    assert trace.origin is not None
    edited = trace.origin.again(trace, [hs.ablate(1, 2, block="cross")]).predictions
    assert edited is not None
    known = dict(edited.top(edited.positions[-1]))
    names = effects.data["candidate"].values
    found = dict(zip(names, np.exp(tables["cross"][1, 2]), strict=True))
    assert len(known.keys() & found.keys()) > 5
    for name in known.keys() & found.keys():
        assert found[name] == pytest.approx(known[name], abs=1e-5)


@pytest.mark.usefixtures("_anywidget")
def test_a_notebook_without_a_kernel_shows_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = golden_trace().explore()
    still = explorer._still()
    assert f'class="headscope-still-{explorer.static_id}"' in still
    assert "&quot;place&quot;:&quot;file&quot;" in still
    assert "Content-Security-Policy" in still
    monkeypatch.setattr("headscope.page.widget.MAX_OFFLINE", 1000)
    assert "Run the cell again for the explorer" in explorer._still()


@pytest.fixture
def bertviz() -> Any:
    pytest.importorskip("IPython", reason="IPython is not installed")
    return importlib.import_module("headscope.bertviz")


def weights(*shape: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.dirichlet(np.ones(shape[-1]), size=(1, *shape[:-1])) for _ in range(2)]


def test_bertviz_head_view(bertviz: Any) -> None:
    tokens = ["[CLS]", "un", "##seen", "[SEP]", "things"]
    html = bertviz.head_view(
        weights(3, 5, 5), tokens, sentence_b_start=4, layer=1, heads=[2], html_action="return"
    )
    assert "head=L1H2&amp;tab=lines" in html.data
    assert html.data.startswith("<div><iframe")
    assert "https://" not in html.data


def test_bertviz_includes_and_encoder_decoder(bertviz: Any) -> None:
    html = bertviz.model_view(
        weights(3, 5, 5),
        list("abcde"),
        include_layers=[1],
        include_heads=[0, 2],
        display_mode="dark",
        html_action="return",
    )
    assert "&quot;layers&quot;:[1]" in html.data
    assert "&quot;present&quot;:[[1,0,1]]" in html.data
    html = bertviz.head_view(
        encoder_attention=weights(2, 4, 4),
        decoder_attention=weights(2, 3, 3),
        cross_attention=weights(2, 3, 4),
        encoder_tokens=list("abcd"),
        decoder_tokens=list("xyz"),
        html_action="return",
    )
    for name in ("encoder", "decoder", "cross"):
        assert f"&quot;name&quot;:&quot;{name}&quot;" in html.data


def test_bertviz_errors_name_the_axes(bertviz: Any) -> None:
    with pytest.raises(InputError, match="tokens is needed with attention"):
        bertviz.head_view(weights(2, 3, 3))
    with pytest.raises(InputError, match=r"head, query, key\) has shape .* but there are 2"):
        bertviz.head_view(weights(2, 3, 3), ["a", "b"])
    with pytest.raises(InputError, match=r"expected \(head, query, key\), or a batch of one"):
        bertviz.head_view([np.ones((2, 3, 4, 4))], list("abcd"))
    with pytest.raises(InputError, match="give it alone"):
        bertviz.head_view(weights(2, 2, 2), ["a", "b"], encoder_tokens=["a"])
    with pytest.raises(InputError, match="There is no attention to show"):
        bertviz.model_view()
    for missing in (None, ()):  # outputs.attentions of a model on SDPA, without and with the option
        with pytest.raises(InputError, match=r"runs on SDPA.*output_attentions=True"):
            bertviz.head_view(missing, ["a", "b"])
        with pytest.raises(InputError, match=r"runs on SDPA.*output_attentions=True"):
            Trace.from_arrays(missing, ["a", "b"])
    with pytest.raises(InputError, match="include_layers=\\[5\\]: give numbers from 0 to 1"):
        bertviz.head_view(weights(2, 2, 2), ["a", "b"], include_layers=[5])
    with pytest.raises(UnknownName, match="html_action 'show'"):
        bertviz.head_view(weights(2, 2, 2), ["a", "b"], html_action="show")


def test_bertviz_words_come_from_the_tokenizer_marks() -> None:
    from headscope.bertviz.views import _words

    assert _words(["[CLS]", "un", "##seen", "[SEP]"], [True, False, False, True]) == [-1, 0, 0, -1]
    assert _words(["The", "Ġun", "seen", "Ġcat"], [False] * 4) == [0, 1, 1, 2]
    assert _words(["a", "b"], [False] * 2) == [0, 1]


def test_no_torch() -> None:
    import subprocess

    code = (
        "import sys, headscope.page.save_page, headscope.page.widget, headscope.page.payload; "
        "sys.exit('torch' in sys.modules)"
    )
    environment = {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
    )


def test_trace_from_arrays_explores() -> None:
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    trace = Trace.from_arrays(np.full((1, 1, 2, 2), 0.5), ["a", "b"])
    assert trace.explore(trace, titles=["x", "y"]).header.count('"title"') == 3


@pytest.mark.usefixtures("_anywidget")
def test_the_kernel_reads_another_text(monkeypatch: pytest.MonkeyPatch, tiny_llama: Model) -> None:
    explorer = tiny_llama.trace("the cat sat").explore()
    sent: list[Any] = []
    monkeypatch.setattr(explorer, "send", lambda content, buffers=None: sent.append(content))
    before = explorer.header
    explorer._answer(None, {"kind": "read", "id": 1, "text": "  "}, None)
    assert "should be a text" in sent[-1]["error"]
    assert explorer.header == before
    explorer._answer(None, {"kind": "read", "id": 2, "text": "the dog sat on"}, None)
    assert sent[-1] == {"id": 2, "found": True}
    tokens = json.loads(explorer.header)["traces"][0]["stacks"]["self"]["tokens"]
    assert "".join(tokens).strip() == "the dog sat on"
    row = {"kind": "row", "trace": 0, "block": "self", "layer": 1, "head": 0, "query": 0}
    explorer._answer(None, {**row, "id": 3}, None)
    assert sent[-1]["found"], "further requests are about the new text"
    golden = golden_trace().explore()
    monkeypatch.setattr(golden, "send", lambda content, buffers=None: sent.append(content))
    golden._answer(None, {"kind": "read", "id": 4, "text": "the dog"}, None)
    assert "error" in sent[-1], "a trace without its model cannot read"
