"""`headscope.open`, and netCDF files of traces, results and probes.

`xarray.open_dataset(path)` gives the values of a result's main attention, or a probe's scores.
Everything else is in groups: `/blocks/decoder`, `/groups/self`, `/documents`, `/parameters`. States
are in `/states/self`: arrays of one type end to end in one variable, indexed by `contents`.
Hundreds of small variables would take seconds to write and to read.

xarray encodes and decodes; h5py writes and reads (`results.hdf5`), because xarray with h5netcdf
looks up every variable about fifty times. Files are netCDF-4 as specified for HDF5: every axis is a
dimension scale.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NoReturn, cast

import h5py  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import xarray as xr

from headscope.arguments import expect
from headscope.atomic import UnsealedFile, atomic_path, check_seal, seal
from headscope.attention import BlockName, key_stack, query_stack
from headscope.errors import FileFormatError, InputError
from headscope.results.effect_data import HeadEffects
from headscope.results.hdf5 import NO_VARIABLE, RawGroup, read_groups, read_in_child
from headscope.results.media import Media
from headscope.results.predictions import Predictions
from headscope.results.probe import Probe
from headscope.results.result import MeasuredDocument, Result
from headscope.results.steps import stacked
from headscope.results.trace import Block, Trace
from headscope.results.wires import Wires
from headscope.text.tokens import Frame, MediaToken, Patch, Tokens

FILE_FORMAT = 3
"""Number of the file format; an edition that renames variables has a new one."""
PROBE, RESULT, TRACE, WIRES = "probe", "result", "trace", "wires"
GROUPS = ("parameters", "log")


def _save(
    path: str | os.PathLike[str], datasets: Mapping[str, xr.Dataset], compression: int = 1
) -> None:
    with atomic_path(path) as temporary:
        save_groups(temporary, datasets, compression)
        seal(temporary)


def _root(data: xr.Dataset, name: str, content: Mapping[str, Any], **attrs: str) -> xr.Dataset:
    """Return the root of a file. Long texts are variables: HDF5 limits attributes to 64 kB."""
    root = data.assign({name: ((), json.dumps(dict(content), ensure_ascii=True))})
    root.attrs.update(headscope=attrs.pop("headscope"), format=FILE_FORMAT, **attrs)
    return root


def _opened(groups: Mapping[str, xr.Dataset], name: str) -> tuple[xr.Dataset, Any]:
    """Return the data of a root, without what `_root` added, and its text."""
    data = groups["/"].drop_vars(name)
    del data.attrs["headscope"], data.attrs["format"]
    return data, json.loads(str(groups["/"][name].item()))


def save_probe(probe: Probe, path: str | os.PathLike[str]) -> None:
    """Write a probe; the file appears when complete."""
    root = _root(probe.scores, "provenance", probe.provenance, headscope=PROBE, kind=probe.kind)
    _save(path, {"/": root, **{f"/{x}": getattr(probe, x) for x in GROUPS}})


def _load_probe(groups: Mapping[str, xr.Dataset]) -> Probe:
    scores, provenance = _opened(groups, "provenance")
    kind = str(scores.attrs.pop("kind"))
    return Probe(kind, groups["/parameters"], scores, groups["/log"], provenance)


def save_wires(wires: Wires, path: str | os.PathLike[str]) -> None:
    """Write wires; the file appears when complete."""
    _save(path, {"/": _root(wires.data, "about", wires.about, headscope=WIRES)}, compression=4)


def _load_wires(groups: Mapping[str, xr.Dataset]) -> Wires:
    return Wires(*_opened(groups, "about"))


def save_result(result: Result, path: str | os.PathLike[str]) -> None:
    """Write a result; the file appears when complete."""
    main, *others = result.blocks
    attrs = {"headscope": RESULT, "blocks": json.dumps([main, *others])}
    root = _root(result.blocks[main], "provenance", result.provenance, **attrs)
    datasets: dict[str, xr.Dataset] = {"/": root}
    for name in others:
        datasets[f"/blocks/{name}"] = result.blocks[name]
    for block in result.blocks if result.groups else ():
        groups = [blocks[block] for blocks in result.groups.values()]
        coords = {**groups[0].coords, "group": list(result.groups)}
        # Groups share a dataset: one for each would load slowly.
        datasets[f"/groups/{block}"] = stacked(groups, "group", coords).assign_attrs(
            groups[0].attrs
        )
    for block, metrics in result.states.items():
        datasets[f"/states/{block}"] = _packed(metrics)
    datasets["/documents"] = _documents(result)
    _save(path, datasets)


def _load_result(groups: Mapping[str, xr.Dataset]) -> Result:
    data, provenance = _opened(groups, "provenance")
    main, *others = json.loads(data.attrs.pop("blocks"))
    blocks = {main: data, **{name: groups[f"/blocks/{name}"] for name in others}}
    states: dict[str, dict[str, xr.Dataset]] = {}
    by_group: dict[str, dict[str, xr.Dataset]] = {}
    for name, data in groups.items():
        kind, *rest = name.strip("/").split("/")
        if kind == "states" and len(rest) == 1 and "contents" in data:
            states[rest[0]] = _unpacked(data)
        elif kind == "groups" and len(rest) == 1:
            for number, group in enumerate(data["group"].values):
                by_group.setdefault(str(group), {})[rest[0]] = data.isel(group=number, drop=True)
    return Result(blocks, states, provenance, _measured(groups["/documents"]), by_group)


def _packed(metrics: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Join the arrays of all states end to end, by type."""
    contents = []
    flat: dict[str, list[np.ndarray]] = {}
    for metric, data in metrics.items():
        for name, array in data.data_vars.items():
            values = array.values
            contents.append([metric, name, values.dtype.name, array.dims, values.shape])
            flat.setdefault(values.dtype.name, []).append(values.ravel())
    arrays = {kind: ((f"of_{kind}",), np.concatenate(parts)) for kind, parts in flat.items()}
    return xr.Dataset({**arrays, "contents": ((), json.dumps(contents))})


def _unpacked(data: xr.Dataset) -> dict[str, xr.Dataset]:
    arrays: dict[str, dict[str, tuple[list[str], np.ndarray]]] = {}
    used: dict[str, int] = {}
    for metric, name, kind, dims, shape in json.loads(str(data["contents"].item())):
        start = used.get(kind, 0)
        used[kind] = start + math.prod(shape)
        values = data[kind].values[start : used[kind]].reshape(shape)
        arrays.setdefault(metric, {})[name] = dims, values
    for kind, packed in data.drop_vars("contents").data_vars.items():
        if used.get(str(kind), 0) != packed.size:
            raise ValueError(
                f"states have {packed.size} numbers of type {kind}, expected "
                f"{used.get(str(kind), 0)}"
            )
    return {metric: xr.Dataset(variables) for metric, variables in arrays.items()}


def _documents(result: Result) -> xr.Dataset:
    numbers = sorted(result.documents)
    texts = [
        json.dumps(
            {"id": result.documents[n].id, "tokens": dict(result.documents[n].tokens)},
            ensure_ascii=True,
        )
        for n in numbers
    ]
    return xr.Dataset(
        {"documents": ("number", np.array(texts, dtype=object))},
        coords={"number": np.array(numbers, dtype=np.int64)},
    )


def _measured(data: xr.Dataset) -> dict[int, MeasuredDocument]:
    documents: dict[int, MeasuredDocument] = {}
    if not data.sizes.get("number"):
        return documents
    for number, text in zip(data["number"].values, data["documents"].values, strict=True):
        fields = json.loads(str(text))
        tokens = {stack: tuple(tokens) for stack, tokens in fields["tokens"].items()}
        documents[int(number)] = MeasuredDocument(fields["id"], tokens)
    return documents


TEXT, PATCH, FRAME = range(3)
"""Kind of a token: first field of a row."""
N_FIELDS = 8
"""Fields: kind, then image, row, column, top, left, bottom and right; or start and end."""


def media_dataset(media: Media) -> xr.Dataset:
    """Return images and recording as variables."""
    variables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        f"image_{number}": ((f"row_{number}", f"column_{number}", "color"), image)
        for number, image in enumerate(media.images)
    }
    if media.sound is not None:
        variables["sound"] = (("sample",), media.sound.astype(np.float32))
    return xr.Dataset(variables, attrs={"rate": media.rate, "images": len(media.images)})


def read_media(data: xr.Dataset) -> Media:
    """Read the dataset of `media_dataset`; `Media` checks the arrays."""
    images = tuple(
        np.asarray(data[f"image_{number}"].values) for number in range(int(data.attrs["images"]))
    )
    sound = np.asarray(data["sound"].values) if "sound" in data else None
    return Media(images, sound, int(data.attrs["rate"]))


def piece_table(media_tokens: Sequence[MediaToken | None]) -> np.ndarray:
    """Return a row of numbers for each token."""
    table = np.zeros((len(media_tokens), N_FIELDS))
    for row, token in zip(table, media_tokens, strict=True):
        if isinstance(token, Patch):
            edges = (token.top, token.left, token.bottom, token.right)
            row[:] = (PATCH, token.image, token.row, token.column, *edges)
        elif isinstance(token, Frame):
            row[:3] = (FRAME, token.start, token.end)
    return table


def read_pieces(table: np.ndarray) -> tuple[MediaToken | None, ...]:
    """Read the table of `piece_table`."""
    if table.ndim != 2 or table.shape[1] != N_FIELDS or not np.isfinite(table).all():
        raise FileFormatError(f"Pieces have shape {table.shape}; expected (token, {N_FIELDS}).")
    return tuple(_media_token([float(x) for x in row]) for row in table)


def _media_token(row: Sequence[float]) -> MediaToken | None:
    kind, *rest = row
    if kind == TEXT:
        return None
    if kind == FRAME:
        return Frame(rest[0], rest[1])
    if kind != PATCH:
        raise FileFormatError(f"A token of kind {kind}; expected {TEXT}, {PATCH} or {FRAME}.")
    image, row_number, column, top, left, bottom, right = rest
    edges = {"top": top, "left": left, "bottom": bottom, "right": right}
    return Patch(int(row_number), int(column), **edges, image=int(image))


FLAGS = ("special", "generated")
TOKEN_NUMBERS = ("ids", "segments", "words")


def save_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace; the file appears when complete."""
    attributes = {
        "headscope": TRACE,
        "format": FILE_FORMAT,
        "blocks": json.dumps(list(trace.blocks)),
        "about": json.dumps(dict(trace.provenance)),
    }
    datasets: dict[str, xr.Dataset] = {"/": xr.Dataset(attrs=attributes)}
    for name, block in trace.blocks.items():
        datasets[f"/blocks/{name}"] = block.data.assign_attrs(is_causal=int(block.is_causal))
    for stack, tokens in trace.stack_tokens.items():
        datasets[f"/stacks/{stack}"] = _token_dataset(tokens, trace.stack_hidden.get(stack))
    if trace.media:
        datasets["/media"] = media_dataset(trace.media)
    if trace.predictions is not None:
        datasets["/predictions"] = _prediction_dataset(trace.predictions)
    if trace.effects is not None:
        datasets["/effects"] = _effects_dataset(trace.effects)
    _save(path, datasets, compression=4)


def _load_trace(groups: Mapping[str, xr.Dataset]) -> Trace:
    tokens: dict[str, Tokens] = {}
    hidden: dict[str, xr.DataArray] = {}
    for stack, data in _within(groups, "/stacks/"):
        tokens[stack] = _tokens(data)
        if "hidden" in data:
            hidden[stack] = data["hidden"]
    blocks = {}
    for name, data in _within(groups, "/blocks/"):
        is_causal = bool(data.attrs.pop("is_causal"))
        blocks[name] = Block(
            cast("BlockName", name),
            data,
            tokens[query_stack(name, tokens)],
            tokens[key_stack(name, tokens)],
            is_causal,
        )
    order = json.loads(groups["/"].attrs["blocks"])
    provenance = json.loads(groups["/"].attrs["about"])
    predictions = _predictions(groups["/predictions"]) if "/predictions" in groups else None
    media = read_media(groups["/media"]) if "/media" in groups else Media()
    ordered = {name: blocks[name] for name in order}
    effects = _effects(groups["/effects"]) if "/effects" in groups else None
    return Trace(ordered, tokens, hidden, provenance, predictions, effects, media=media)


def _within(groups: Mapping[str, xr.Dataset], place: str) -> Iterator[tuple[str, xr.Dataset]]:
    for name, data in groups.items():
        if name.startswith(place):
            yield name.removeprefix(place), data


def _prediction_dataset(predictions: Predictions) -> xr.Dataset:
    data = predictions.data
    strings = {name: (data[name].dims, _strings(data[name].values)) for name in ("token", "at")}
    return data.drop_vars(list(strings)).assign(strings).assign_attrs(kind=predictions.kind)


def _predictions(data: xr.Dataset) -> Predictions:
    return Predictions.of(
        data.attrs["kind"],
        positions=data["position"].values.tolist(),
        at=_text_tuple(data["at"]),
        tokens=[_text_tuple(row) for row in data["token"]],
        ids=data["id"].values,
        logits=data["logit"].values,
        probabilities=data["probability"].values,
    )


def _effects_dataset(effects: HeadEffects) -> xr.Dataset:
    data = effects.data.assign_attrs(kind=effects.kind)
    if "candidate" not in data.coords:
        return data
    texts = _strings(tuple(str(text) for text in data["candidate"].values))
    return data.drop_vars("candidate").assign(text=("candidate", texts))


def _effects(data: xr.Dataset) -> HeadEffects:
    kind = data.attrs.pop("kind")
    if "text" in data:
        texts = np.array(_text_tuple(data["text"]), dtype=object)
        data = data.drop_vars("text").assign_coords(candidate=texts)
    return HeadEffects(kind, data)


def _token_dataset(tokens: Tokens, hidden: xr.DataArray | None) -> xr.Dataset:
    """Return per-token fields as variables: attributes have a size limit, texts do not."""
    variables: dict[str, tuple[str | tuple[str, str], np.ndarray]] = {
        "texts": ("text", _strings(tokens.texts)),
        "tokens": ("query", _strings(tokens.tokens)),
        "word_texts": ("word", _strings(tokens.word_texts)),
    }
    for name in FLAGS:
        variables[name] = ("query", np.array(getattr(tokens, name), dtype=np.int8))
    for name in TOKEN_NUMBERS:
        variables[name] = ("query", np.array(getattr(tokens, name), dtype=np.int64))
    if tokens.offsets is not None:
        offsets = np.array(tokens.offsets, dtype=np.int64).reshape(-1, 2)
        variables["offsets"] = (("query", "edge"), offsets)
    if tokens.media_tokens:
        variables["pieces"] = (("query", "field"), piece_table(tokens.media_tokens))
    dataset = xr.Dataset(variables)
    return dataset if hidden is None else dataset.assign(hidden=hidden)


def _tokens(data: xr.Dataset) -> Tokens:
    special, generated = (tuple(bool(x) for x in data[name].values) for name in FLAGS)
    ids, segments, words = (tuple(int(x) for x in data[name].values) for name in TOKEN_NUMBERS)
    offsets = None
    if "offsets" in data:
        offsets = tuple((int(a), int(b)) for a, b in data["offsets"].values)
    return Tokens(
        texts=_text_tuple(data["texts"]),
        tokens=_text_tuple(data["tokens"]),
        word_texts=_text_tuple(data["word_texts"]),
        offsets=offsets,
        special=special,
        generated=generated,
        ids=ids,
        segments=segments,
        words=words,
        media_tokens=read_pieces(data["pieces"].values) if "pieces" in data else (),
    )


def _strings(texts: Sequence[str] | np.ndarray) -> np.ndarray:
    """Return JSON strings: netCDF strings cannot hold NUL or lone surrogates."""
    return np.asarray(np.vectorize(json.dumps, otypes=[object])(np.array(texts, dtype=object)))


def _text_tuple(array: xr.DataArray) -> tuple[str, ...]:
    return tuple(json.loads(str(x)) for x in array.values)


RESULT_FILE = "result.nc"


def _check_format(file: Path, version: object) -> None:
    """Refuse files of another edition: their variables have other names."""
    number = version if isinstance(version, int | np.integer) else 0  # arrays cannot be compared
    if number == FILE_FORMAT:
        return
    if number > FILE_FORMAT:
        raise FileFormatError(
            f"{str(file)!r} has format {version}, expected {FILE_FORMAT} at most. Install a newer "
            "headscope."
        )
    raise FileFormatError(
        f"{str(file)!r} was written by an earlier edition of headscope (format {version!s:.40}, "
        f"expected {FILE_FORMAT}). Measure it again, or open it with that edition."
    )


_LOADERS: dict[str, Callable[[Mapping[str, xr.Dataset]], Trace | Result | Probe | Wires]] = {
    TRACE: _load_trace,
    RESULT: _load_result,
    PROBE: _load_probe,
    WIRES: _load_wires,
}


def open(path: str | os.PathLike[str]) -> Trace | Result | Probe | Wires:
    """Open a saved trace, result (also by its run folder), probe or wires.

    Raises:
        InputError: the file does not exist.
        FileFormatError: headscope did not write the file, or it is damaged.
    """
    expect("path", path, str | os.PathLike, "the name of a file or folder")
    file = Path(path)
    if file.is_dir():
        file = file / RESULT_FILE
        if not file.is_file():
            raise InputError(
                f"The folder {str(file.parent)!r} has no {RESULT_FILE}: no run has finished there. "
                "Run the same analysis again to go on with it."
            )
    if not file.is_file():
        raise InputError(f"There is no file or run folder {str(file)!r}.")
    try:
        is_own = check_seal(file)
    except UnsealedFile as error:
        _explain_unsealed(file, error)
    raw = read_groups(file) if is_own else read_in_child(file)
    kind = raw["/"].attributes["headscope"]
    _check_format(file, raw["/"].attributes.get("format"))
    try:
        opened = _LOADERS[kind](decode_groups(raw))
        repr(opened)  # reads the required fields: names, sizes, number of documents
    except FileFormatError:
        raise
    except Exception as error:
        raise FileFormatError(
            f"{str(file)!r} says it is a headscope {kind}, but its content is damaged "
            f"({type(error).__name__}: {error})."
        ) from error
    return opened


def _explain_unsealed(file: Path, error: UnsealedFile) -> NoReturn:
    """Raise the error that tells a file of another edition or program from a damaged one."""
    try:
        attributes = read_in_child(file)["/"].attributes
    except FileFormatError as reason:
        raise UnsealedFile(str(reason)) from None
    _check_format(file, attributes.get("format", 2))
    raise UnsealedFile(
        f"{error} It was cut off, or changed by another program. headscope does not read it; "
        "xarray.open_dataset does."
    ) from None


MIN_COMPRESSED = 1000
"""Smaller arrays take more space compressed than plain."""
MAX_PADDED = 64 << 20
"""Maximum bytes of texts as an array of strings."""


def save_groups(
    path: str | os.PathLike[str], datasets: Mapping[str, xr.Dataset], compression: int = 1
) -> None:
    """Write datasets as groups of a new file, by path (`/`, `/states/self`)."""
    numbers = count()
    with h5py.File(path, "w", track_order=True) as root:
        for place, data in datasets.items():
            group = root if place == "/" else root.create_group(place, track_order=True)
            variables, attributes = xr.conventions.encode_dataset_coordinates(data)
            _write_attributes(group, attributes)
            items = {
                str(name): _write(group, str(name), variable, compression)
                for name, variable in variables.items()
            }
            scales: dict[str, h5py.Dataset] = {}
            for dim, size in data.sizes.items():
                name = str(dim)
                title = name if name in items else f"{NO_VARIABLE.decode()}. {size:10d}"
                scales[name] = items.get(name) or group.create_dataset(name, (size,), ">f4")
                scales[name].make_scale(title)
                scales[name].attrs["_Netcdf4Dimid"] = np.int32(next(numbers))
            for name, item in items.items():
                if name not in scales:
                    for axis, dim in enumerate(variables[name].dims):
                        h5py.h5ds.attach_scale(item.id, scales[str(dim)].id, axis)


def _write(group: h5py.Group, name: str, variable: xr.Variable, compression: int) -> h5py.Dataset:
    encoded = xr.conventions.encode_cf_variable(variable, name=name)
    values = np.asarray(encoded.values)
    if values.dtype.kind in "UO":
        item = group.create_dataset(name, values.shape, h5py.string_dtype())
        if values.size:
            item[()] = values.astype(object)
    else:
        is_many = values.size > MIN_COMPRESSED
        level = compression if is_many else None
        item = group.create_dataset(name, data=values, compression=level, shuffle=is_many)
    _write_attributes(item, encoded.attrs)
    return item


def _write_attributes(item: h5py.Group | h5py.Dataset, attributes: Mapping[str, object]) -> None:
    for name, value in attributes.items():
        item.attrs[name] = value if isinstance(value, str) else np.atleast_1d(np.asarray(value))


def decode_groups(groups: Mapping[str, RawGroup]) -> dict[str, xr.Dataset]:
    """Return groups as datasets, by path (`/`, `/log`)."""
    datasets = {}
    for place, group in groups.items():
        variables = {
            name: xr.Variable(
                dims, _text(values) if values.dtype.kind == "O" else values, attributes
            )
            for name, (dims, values, attributes) in group.variables.items()
        }
        datasets[place] = xr.decode_cf(xr.Dataset(variables, attrs=group.attributes)).load()
    return datasets


def _text(values: np.ndarray) -> np.ndarray:
    """Return an array of strings, padded to the longest; objects if padding exceeds a limit."""
    longest = max((len(text) for text in values.flat), default=0)
    return values if 4 * longest * values.size > MAX_PADDED else values.astype(str)
