"""A trace as plain arrays: words, arrays from elsewhere, files."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import headscope as hs
from headscope.atomic import atomic_path
from headscope.errors import FileFormatError, HeadscopeWarning, InputError, UnknownName
from headscope.model.model import Model
from headscope.results.trace import Trace
from headscope.text.tokens import Tokens

HALF = np.array([[0.5, 0.25, 0.25], [0.2, 0.4, 0.4], [1.0, 0.0, 0.0]])


def test_by_word_sums_to_and_averages_from() -> None:
    """Tokens 1 and 2 are one word. To it: 0.25 + 0.25, 0.4 + 0.4, 0. From it: the mean of
    rows (0.2, 0.8) and (1, 0)."""
    trace = Trace.from_arrays(HALF[None, None], ["a", "un", "able"], words=[0, 1, 1])
    words = trace.by_word()
    np.testing.assert_allclose(words.attention.values[0, 0], [[0.5, 0.5], [0.6, 0.4]])
    assert words.tokens == ("a", "unable")
    assert words.provenance["unit"] == "word"


def test_by_word_keeps_special_tokens_and_words_in_pieces() -> None:
    tokens = Tokens.of(
        ["[CLS]", "a", "b", "c"], special=[True, False, False, False], words=[-1, 0, 1, 0]
    )
    weights = np.full((1, 1, 4, 4), 0.25)
    words = Trace.from_arrays(weights, tokens).by_word()
    assert words.tokens == ("[CLS]", "ac", "b")
    assert words.text.special == (True, False, False)
    np.testing.assert_allclose(words.attention.values[0, 0], [[0.25, 0.5, 0.25]] * 3)


@settings(max_examples=50)
@given(data=st.data(), n=st.integers(1, 8))
def test_rows_still_sum_to_one_by_word(data: st.DataObject, n: int) -> None:
    numbers = data.draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n))
    raw = data.draw(st.lists(st.floats(0.01, 1), min_size=n * n, max_size=n * n))
    weights = np.array(raw).reshape(1, 1, n, n)
    weights /= weights.sum(-1, keepdims=True)
    trace = Trace.from_arrays(weights, ["x"] * n, words=numbers)
    words = trace.by_word()
    np.testing.assert_allclose(words.attention.sum("key").values, 1, atol=1e-5)
    assert len(words.tokens) == len(set(numbers) - {-1}) + numbers.count(-1)


def test_by_word_of_a_model(tiny_bert: Model, tiny_t5: Model) -> None:
    words = tiny_bert.trace("the unbelievable cat").by_word()
    assert words.tokens == ("[CLS]", "the", "unbelievable", "cat", "[SEP]")
    np.testing.assert_allclose(words.attention.sum("key").values, 1, atol=1e-5)
    both = tiny_t5.trace("the unbelievable cat", target="a dog").by_word()
    assert dict(both.cross.attention.sizes) == {"layer": 2, "head": 4, "query": 4, "key": 5}
    with pytest.raises(InputError, match="no queries"):
        words.queries  # noqa: B018


@pytest.mark.parametrize(
    "form",
    [
        lambda a: a,
        list,
        lambda a: tuple(torch.tensor(layer)[None] for layer in a),
        lambda a: torch.tensor(a, requires_grad=True),
        lambda a: torch.tensor(a).bfloat16(),
        lambda a: [layer.half() for layer in torch.tensor(a)],
        lambda a: a.tolist(),
        xr.DataArray,
    ],
    ids=["array", "list", "transformers", "torch", "bfloat16", "half", "nested lists", "xarray"],
)
def test_from_arrays_takes_any_container(form: object) -> None:
    # In quarters, which bfloat16 holds exactly.
    rows = np.array([[0.25, 0.75, 0], [0.5, 0.25, 0.25], [0, 0, 1]], dtype=np.float32)
    weights = np.stack([np.roll(rows, n, axis=1) for n in range(8)]).reshape(2, 4, 3, 3)
    trace = Trace.from_arrays(form(weights), ["a", "b", "c"])  # type: ignore[operator]
    np.testing.assert_allclose(trace.attention.values, weights, rtol=1e-6)
    assert trace.attention.dims == ("layer", "head", "query", "key")


def test_causality_is_seen() -> None:
    lower = np.tril(np.ones((3, 3))) / np.arange(1, 4)[:, None]
    assert Trace.from_arrays(lower[None, None], list("abc")).main.is_causal
    assert not Trace.from_arrays(HALF[None, None], list("abc")).main.is_causal
    assert Trace.from_arrays(HALF[None, None], list("abc"), is_causal=True).main.is_causal
    assert not Trace.from_arrays(np.ones((1, 1, 1, 1)), ["a"]).main.is_causal


BAD = [
    (np.ones((3, 3)), "has 2 axes (3, 3); expected four: layer, head, query, key"),
    (np.ones((1, 1, 3, 2)), "3 queries × 2 keys, but there are 3 tokens"),
    (np.ones((1, 1, 4, 4)), "4 queries × 4 keys, but there are 3 tokens"),
    ([np.ones((2, 1, 3, 3))], "Layer 0 of the attention has shape (2, 1, 3, 3)"),
    ([np.ones((1, 3, 3)), np.ones((2, 3, 3))], "Layers differ in shape"),
    ([], "the sequence of layers is empty"),
    (np.ones((0, 1, 3, 3)), "is empty: (0, 1, 3, 3)"),
    (np.array([[["a"]]]), "should be numbers"),
    ([[[[1.0], [0.5, 0.5]]]], "should be one array of numbers"),
    (HALF[None, None] - 1, "weights down to -1; expected 0 to 1, after the softmax"),
]


@pytest.mark.parametrize(("attention", "message"), BAD, ids=[m for _, m in BAD])
def test_wrong_shapes_name_the_axes(attention: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Trace.from_arrays(attention, ["a", "b", "c"])
    assert message in str(caught.value)


def test_rows_of_more_than_one_are_told() -> None:
    with pytest.warns(HeadscopeWarning, match=r"rows that sum to 2; expected 1, after the soft"):
        Trace.from_arrays(2 * HALF[None, None], list("abc"))
    long = torch.rand(1, 1, 400, 400).softmax(-1)
    for rounded in (long.half(), long.bfloat16()):
        Trace.from_arrays(rounded, ["a"] * 400)


@pytest.mark.parametrize("tokens", [[1, 2, 3], ["a", "b", None], None, 3])
def test_tokens_are_strings(tokens: Any) -> None:
    with pytest.raises(InputError, match="expected a list of strings"):
        Trace.from_arrays(HALF[None, None], tokens)


@pytest.mark.parametrize("words", [[0, 5, -7], [0, 1.5, 2], ["a", "b", "c"]])
def test_words_are_numbers(words: Any) -> None:
    with pytest.raises(InputError, match="expected a number from 0 on, or -1 for no word"):
        Trace.from_arrays(HALF[None, None], list("abc"), words=words)
    skipped = Trace.from_arrays(HALF[None, None], list("abc"), words=[0, 5, -1]).by_word()
    assert skipped.tokens == ("a", "b", "c")


def test_fields_must_agree() -> None:
    with pytest.raises(InputError, match=r"3 tokens, but \{'special': 2\}"):
        Trace.from_arrays(HALF[None, None], list("abc"), special=[True, False])


def test_files_keep_everything(tiny_t5: Model, tmp_path: Path) -> None:
    trace = tiny_t5.trace("the unbelievable cat", target="a dog")
    path = tmp_path / "trace.nc"
    trace.save(path)
    again = hs.open(path)
    assert list(again.blocks) == list(trace.blocks)
    assert again.stack_tokens == trace.stack_tokens
    assert again.provenance == trace.provenance
    for name, block in trace.blocks.items():
        xr.testing.assert_identical(again.blocks[name].data, block.data)
        assert again.blocks[name].is_causal == block.is_causal
    for stack, hidden in trace.stack_hidden.items():
        np.testing.assert_array_equal(again.stack_hidden[stack].values, hidden.values)
    assert repr(again) == repr(trace)
    assert [p.name for p in path.parent.iterdir()] == ["trace.nc"]


def test_plain_xarray_opens_the_file(tiny_bert: Model, tmp_path: Path) -> None:
    trace = tiny_bert.trace("the cat")
    trace.save(tmp_path / "trace.nc")
    with xr.open_dataset(tmp_path / "trace.nc", group="/blocks/self", engine="h5netcdf") as data:
        np.testing.assert_array_equal(data["attention"].values, trace.attention.values)


@settings(max_examples=25, deadline=None)
@given(tokens=st.lists(st.text(), min_size=1, max_size=4))
def test_any_token_survives_a_file(
    tmp_path_factory: pytest.TempPathFactory, tokens: list[str]
) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.nc"
    n = len(tokens)
    trace = Trace.from_arrays(np.full((1, 1, n, n), 1 / n), tokens)
    trace.save(path)
    assert hs.open(path).text == trace.text


def test_a_long_text_survives_a_file(tmp_path: Path) -> None:
    """Attributes of netCDF are limited to 64 kB; texts are not attributes."""
    tokens = Tokens.of(["x" * 100_000])
    Trace.from_arrays(np.ones((1, 1, 1, 1)), tokens).save(tmp_path / "trace.nc")
    assert hs.open(tmp_path / "trace.nc").text == tokens


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no file"):
        hs.open(tmp_path / "nothing.nc")
    (tmp_path / "text.nc").write_text("not netCDF")
    with pytest.raises(FileFormatError, match="cannot be read as netCDF"):
        hs.open(tmp_path / "text.nc")
    xr.Dataset({"a": 1}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(FileFormatError, match="not a headscope file"):
        hs.open(tmp_path / "other.nc")


def test_a_cut_file_is_refused(tiny_bert: Model, tmp_path: Path) -> None:
    path = tmp_path / "trace.nc"
    tiny_bert.trace("the cat").save(path)
    whole = path.read_bytes()
    for share in (0.1, 0.5, 0.9):
        path.write_bytes(whole[: int(len(whole) * share)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(FileFormatError):
                hs.open(path)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(NotADirectoryError), atomic_path(path) as temporary:
        (temporary / "not a folder").read_text()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InputError, match="is a folder"), atomic_path(tmp_path):
        pass


def test_blocks_are_found_by_name(tiny_bert: Model) -> None:
    with pytest.raises(UnknownName, match=r"Unknown block 'cross'\. Known: self"):
        tiny_bert.trace("the cat").cross  # noqa: B018


def test_the_recorded_gpt2_has_its_previous_token_head(data_folder: Path) -> None:
    """V&B's Figure 1: in GPT-2 small, L4 H11 attends to the previous token."""
    recorded = json.loads((data_folder / "gpt2" / "recorded.json").read_text())
    for run in recorded:
        trace = Trace.from_arrays(run["attention"], run["tokens"], name="gpt2")
        assert trace.main.is_causal
        previous = np.diagonal(trace.attention.values, -1, axis1=2, axis2=3).mean(-1)
        assert np.unravel_index(previous.argmax(), previous.shape) == (4, 11)
        assert previous[4, 11] > 0.99


def test_a_notebook_shows_the_facts() -> None:
    trace = Trace.from_arrays(np.full((2, 3, 2, 2), 0.5), ["<b>", "b"], name="mine")
    shown = trace._repr_html_()
    assert "2 layers × 3 heads" in shown
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown


def test_a_trace_measures_itself() -> None:
    trace = Trace.from_arrays(np.eye(3)[None, None], ["a", "b", "c"])
    result = trace.measure("distance")
    assert result["distance"].item() == 0
    assert result.n_documents == 1
