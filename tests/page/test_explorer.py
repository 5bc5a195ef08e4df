"""The widget without a notebook, and BertViz's functions."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headscope.errors import InputError, MissingExtra, UnknownName
from headscope.page.explorer import explore
from headscope.results.trace import Trace
from tests.page.golden_payload import golden_trace


def test_without_anywidget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "headscope.page.widget", raising=False)
    with pytest.raises(MissingExtra, match=r'pip install "headscope\[widget\]"'):
        explore(golden_trace())


def test_not_a_trace() -> None:
    with pytest.raises(InputError, match="A Trace is needed, not list"):
        explore([1, 2])  # type: ignore[arg-type]


@pytest.fixture
def _anywidget() -> None:
    pytest.importorskip("anywidget", reason="anywidget is not installed")


@pytest.mark.usefixtures("_anywidget")
def test_views_open_where_they_should(tmp_path: Path) -> None:
    trace = golden_trace()
    assert trace.explore().selection == ""
    head = trace.explore(view="head", layer=1, heads=[0])
    assert head.selection == "view=head&layer=1&heads=0"
    assert trace.explore(view="model").selection == "view=model"
    made = trace.explore(view="neuron", layer=0, heads=1, queries=2)
    assert made.selection == "view=neurons&layer=0&heads=1&queries=2"
    with pytest.raises(UnknownName, match=r"Unknown view 'neurons'\. Did you mean 'neuron'"):
        trace.explore(view="neurons")  # type: ignore[arg-type]
    made.selection = "layer=1"
    made.save(tmp_path / "page.html")
    assert '"selection":"layer=1"' in (tmp_path / "page.html").read_text("utf-8")


def test_a_page_opens_where_it_should(tmp_path: Path) -> None:
    trace = golden_trace()
    trace.save_page(tmp_path / "page.html", trace, view="neuron", layer=1, titles=["x", "y"])
    page = (tmp_path / "page.html").read_text("utf-8")
    assert '"selection":"view=neurons&layer=1"' in page
    assert '"title":"x"' in page
    assert '"title":"y"' in page


@pytest.mark.usefixtures("_anywidget")
def test_the_kernel_answers_with_exact_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = explore(golden_trace())
    sent: list[Any] = []
    monkeypatch.setattr(explorer, "send", lambda content, buffers: sent.append((content, buffers)))
    row = {"kind": "row", "id": 7, "trace": 0, "block": "self", "layer": 1, "head": 0, "query": 2}
    explorer._answer(None, row, None)
    explorer._answer(None, {**row, "layer": 9}, None)
    explorer._answer(None, {"kind": "other"}, None)
    assert [content for content, _ in sent] == [
        {"id": 7, "found": True},
        {"id": 7, "found": False},
    ]
    np.testing.assert_array_equal(
        np.frombuffer(sent[0][1][0], dtype="<f4"), np.float32([0.123, 0.456, 0.421])
    )


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
    assert "view=head&amp;layer=1&amp;heads=2" in html.data
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
        "import sys, headscope.page.save_page, headscope.page.explorer, headscope.page.payload; "
        "sys.exit('torch' in sys.modules)"
    )
    environment = {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
    )


def test_trace_from_arrays_explores() -> None:
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    trace = Trace.from_arrays(np.full((1, 1, 2, 2), 0.5), ["a", "b"])
    assert explore(trace, trace, titles=["x", "y"]).header.count('"title"') == 2
