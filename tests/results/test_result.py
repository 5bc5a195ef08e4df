"""Results: values by name, files that plain xarray opens, damaged files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xarray as xr

import headscope as hs
from headscope.errors import FileFormatError, InputError, UnknownName
from headscope.results.result import Result
from headscope.run.analyze import analyze
from tests.run.corpora import make_corpus
from tests.run.same import assert_same_bits

if TYPE_CHECKING:
    from headscope.model.model import Model


@pytest.fixture(scope="module")
def result(tiny_bert: Model) -> Result:
    return analyze(tiny_bert, make_corpus(30), by="genre")


def test_a_file_holds_everything(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "result.nc"
    result.save(path)
    for opened in (hs.open(path), hs.open(tmp_path)):
        assert isinstance(opened, Result)
        assert_same_bits(opened, result)
        assert opened.provenance == result.provenance
        xr.testing.assert_identical(opened.group("news"), result.group("news"))
        assert opened["distance"].attrs == result["distance"].attrs


def test_plain_xarray_opens_it(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "result.nc")
    with xr.open_dataset(tmp_path / "result.nc", engine="h5netcdf") as data:
        np.testing.assert_array_equal(data["entropy"], result["entropy"])
        assert data["entropy"].attrs["units"] == "nats"


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
    assert "2 layers × 4 heads, 30 documents" in repr(result)
    with pytest.raises(UnknownName, match="Did you mean 'distance'"):
        result["distanc"]
    with pytest.raises(InputError, match="also has axes"):
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


def test_damaged_and_foreign_files(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "result.nc"
    result.save(path)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(FileFormatError, match="cannot be read as netCDF"):
        hs.open(path)
    xr.Dataset({"x": 1}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(FileFormatError, match="not a headscope file"):
        hs.open(path)
    xr.Dataset({"x": 1}, attrs={"headscope": "result"}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(FileFormatError, match="its content is damaged"):
        hs.open(path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match=r"has no result\.nc"):
        hs.open(empty)
