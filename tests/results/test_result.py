"""Results: values by name, files that plain xarray opens, damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest
import xarray as xr

import headscope as hs
from headscope.errors import FileFormatError, InputError, UnknownName
from headscope.results.files import decode_groups
from headscope.results.hdf5 import read_groups
from headscope.results.result import Result
from headscope.run.analyze import analyze
from tests.results.sealing import seal_as_stranger
from tests.run.corpora import make_corpus
from tests.run.same import assert_same_bits

if TYPE_CHECKING:
    from headscope.model.model import Model


@pytest.fixture(scope="module")
def result(tiny_bert: Model) -> Result:
    return analyze(tiny_bert, make_corpus(30), by="genre")


@pytest.fixture(scope="module")
def small(tiny_bert: Model) -> Result:
    return analyze(tiny_bert, make_corpus(8), ["distance", "pos_to", "variability"])


def test_a_file_holds_everything(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "result.nc"
    result.save(path)
    for opened in (hs.open(path), hs.open(tmp_path)):
        assert isinstance(opened, Result)
        assert_same_bits(opened, result)
        assert opened.provenance == result.provenance
        xr.testing.assert_identical(opened.group("news").dataset, result.group("news").dataset)
        xr.testing.assert_identical(opened.groups["news"]["self"], result.group("news").dataset)
        assert opened["distance"].attrs == result["distance"].attrs


def test_plain_xarray_opens_it(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "result.nc")
    with xr.open_dataset(tmp_path / "result.nc", engine="h5netcdf") as data:
        np.testing.assert_array_equal(data["entropy"], result["entropy"])
        assert data["entropy"].attrs["units"] == "nats"


def test_states_that_do_not_fit_their_table_are_refused(small: Result, tmp_path: Path) -> None:
    file = tmp_path / "result.nc"
    small.save(file)
    with h5py.File(file, "a") as root:
        contents = json.loads(root["states/self/contents"].asstr()[()])
        root["states/self/contents"][()] = json.dumps(contents[:-1])
    seal_as_stranger(file)
    with pytest.raises(FileFormatError, match=r"states have \d+ numbers of type"):
        hs.open(file)


def test_our_way_of_reading_is_xarrays(small: Result, tmp_path: Path) -> None:
    file = tmp_path / "result.nc"
    small.save(file)
    groups = xr.open_groups(file, engine="h5netcdf")
    loaded = decode_groups(read_groups(file))
    assert loaded.keys() == groups.keys()
    for name, data in groups.items():
        assert loaded[name].identical(data.load())
        assert {n: v.dtype for n, v in loaded[name].data_vars.items()} == {
            n: v.dtype for n, v in data.data_vars.items()
        }
        data.close()


def test_encoder_decoder_files(tiny_t5: Model, tmp_path: Path) -> None:
    result = analyze(tiny_t5, make_corpus(8))
    result.save(tmp_path / "result.nc")
    opened = hs.open(tmp_path / "result.nc")
    assert isinstance(opened, Result)
    assert_same_bits(opened, result)


def test_values_by_name(result: Result) -> None:
    assert result["distance"].dims == ("layer", "head")
    assert "distance" in result
    best = result.top("pos_to", 1, tag="NOUN")[0]
    values = result["pos_to"].sel(tag="NOUN")
    assert best[2] == float(values.max())
    assert float(values.sel(layer=best[0], head=best[1])) == best[2]
    assert "2 layers × 4 heads; 30 documents (as given), 258 tokens" in repr(result)
    with pytest.raises(UnknownName, match="Did you mean 'distance'"):
        result["distanc"]
    with pytest.raises(InputError, match="also has the axes"):
        result.top("pos_to")
    with pytest.raises(UnknownName, match="Unknown block 'cross'"):
        result.block("cross")
    with pytest.raises(UnknownName, match="Unknown group"):
        result.group("poetry")


def test_exemplars_carry_their_text(result: Result) -> None:
    found = result.exemplars(0, 0)
    assert [e.weight for e in found] == sorted((e.weight for e in found), reverse=True)
    assert len({e.document.id for e in found}) == len(found)
    assert "→" in str(found[0])


def test_damaged_and_foreign_files(small: Result, tmp_path: Path) -> None:
    path = tmp_path / "result.nc"
    small.save(path)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(FileFormatError, match="cannot be read as netCDF"):
        hs.open(path)
    xr.Dataset({"x": 1}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(FileFormatError, match="not a headscope file"):
        hs.open(path)
    xr.Dataset({"x": 1}, attrs={"headscope": "result", "format": 3}).to_netcdf(
        path, engine="h5netcdf"
    )
    with pytest.raises(FileFormatError, match="does not end with headscope's seal"):
        hs.open(path)
    seal_as_stranger(path)
    with pytest.raises(FileFormatError, match="its content is damaged"):
        hs.open(path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match=r"has no result\.nc"):
        hs.open(empty)


def test_a_table_of_heads(result: Result) -> None:
    frame = result.to_dataframe("distance", "entropy")
    assert frame.index.names == ["layer", "head"]
    kinds = ("", "_low", "_high")
    assert list(frame) == [f"{name}{k}" for name in ("distance", "entropy") for k in kinds]
    low, high = result["distance_interval"].sel(layer=1, head=2).values
    row = frame.loc[(1, 2)]
    assert row["distance"] == float(result["distance"].sel(layer=1, head=2))
    assert (row["distance_low"], row["distance_high"]) == (low, high)
    every = result.to_dataframe()
    assert {"distance", "distance_low", "entropy", "null_share"} <= set(every)
    assert "pos_to" not in every
    assert len(every) == 8


def test_other_axes_are_levels_of_the_index(result: Result) -> None:
    frame = result.to_dataframe("pos_to")
    assert frame.index.names == ["layer", "head", "tag"]
    expected = float(result["pos_to"].sel(layer=1, head=3, tag="NOUN"))
    assert frame.loc[(1, 3, "NOUN"), "pos_to"] == expected
    by_layer = result.to_dataframe("distance_by_layer")
    assert by_layer.index.names == ["layer"]
    np.testing.assert_array_equal(by_layer["distance_by_layer"], result["distance_by_layer"])


def test_what_makes_no_table_is_refused(result: Result) -> None:
    with pytest.raises(UnknownName, match=r"Unknown variable 'distanc'\. Did you mean 'distance'"):
        result.to_dataframe("distanc")
    with pytest.raises(InputError, match="distance is over layer, head, pos_to over layer, head, "):
        result.to_dataframe("distance", "pos_to")
    with pytest.raises(InputError, match="dep_baseline is a single number"):
        result.to_dataframe("dep_baseline")


def test_a_notebook_shows_the_facts(result: Result) -> None:
    shown = result._repr_html_()
    assert "<td style='text-align:left'>2 layers × 4 heads</td>" in shown
    assert "news" in shown
    assert "<script" not in shown


def test_methods_reach_up(result: Result, tiny_bert: Model, tmp_path: Path) -> None:
    card = result.card(1, 2, analyze(tiny_bert, make_corpus(8), "js"))
    assert card.name == "L1 H2"
    assert card.nearest
    assert result.report(tmp_path / "report.html", title="A title") == tmp_path / "report.html"
    assert "A title" in (tmp_path / "report.html").read_text("utf-8")


def test_variables_of_other_axes_stand_in_one_table_by_a_label(tiny_bert: Model) -> None:
    result = analyze(tiny_bert, make_corpus(12))
    table = result.to_dataframe("distance", "dep_alignment", parent="either")
    assert list(table.index.names) == ["layer", "head"]
    expected = result["dep_alignment"].sel(parent="either").values.ravel()
    np.testing.assert_array_equal(table["dep_alignment"], expected)
    assert {"distance_low", "dep_alignment_high"} <= set(table)
    assert not [name for name in result.to_dataframe() if name.endswith("_count")]
    with pytest.raises(InputError, match='parent="either"'):
        result.to_dataframe("distance", "dep_alignment")
    with pytest.raises(UnknownName, match="Unknown parent 'boo'"):
        result.to_dataframe("distance", parent="boo")
    with pytest.raises(UnknownName, match=r"Unknown axis 'parant'\. Did you mean 'parent'"):
        result.to_dataframe("distance", parant="either")


@pytest.mark.parametrize(
    ("version", "message"),
    [(None, "earlier edition"), (2, "earlier edition"), (99, "Install a newer")],
)
def test_files_of_other_formats_are_refused_by_name(
    small: Result, tmp_path: Path, version: int | None, message: str
) -> None:
    file = tmp_path / "result.nc"
    small.save(file)
    with h5py.File(file, "a") as root:
        del root.attrs["format"]
        if version is not None:
            root.attrs["format"] = version
    with pytest.raises(FileFormatError, match=message):
        hs.open(file)
