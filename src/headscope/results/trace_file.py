"""A trace as one netCDF file: a group per block and per token stack, metadata as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np
import xarray as xr

from headscope.atomic import atomic_path
from headscope.attention import Block as BlockName
from headscope.attention import key_stack, query_stack
from headscope.results.head_effects import HeadEffects
from headscope.results.media import Media
from headscope.results.media_file import media_dataset, piece_table, read_media, read_pieces
from headscope.results.netcdf import load_groups, save_groups
from headscope.results.predictions import Predictions
from headscope.results.trace import Block, Trace
from headscope.text.tokens import Tokens

KIND = "trace"
FLAGS = ("special", "generated")
NUMBERS = ("ids", "segments", "words")


def save_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace; the file appears under its name only when it is complete."""
    datasets: dict[str, xr.Dataset] = {"/": xr.Dataset(attrs=_attributes(trace))}
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
    with atomic_path(path) as temporary:
        save_groups(temporary, datasets, compression=4)


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """The trace a file holds."""
    groups = load_groups(path)
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
    about = json.loads(groups["/"].attrs["about"])
    predictions = _predictions(groups["/predictions"]) if "/predictions" in groups else None
    media = read_media(groups["/media"]) if "/media" in groups else Media()
    ordered = {name: blocks[name] for name in order}
    effects = _effects(groups["/effects"]) if "/effects" in groups else None
    return Trace(ordered, tokens, hidden, about, predictions, effects, media=media)


def _within(groups: Mapping[str, xr.Dataset], place: str) -> Iterator[tuple[str, xr.Dataset]]:
    """The groups within a group, by their names."""
    for name, data in groups.items():
        if name.startswith(place):
            yield name.removeprefix(place), data


def _prediction_dataset(predictions: Predictions) -> xr.Dataset:
    data = predictions.data
    strings = {
        name: (
            data[name].dims,
            _strings(tuple(data[name].values.ravel())).reshape(data[name].shape),
        )
        for name in ("token", "at")
    }
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


def _attributes(trace: Trace) -> dict[str, str]:
    return {
        "headscope": KIND,
        "blocks": json.dumps(list(trace.blocks)),
        "about": json.dumps(dict(trace.about)),
    }


def _token_dataset(tokens: Tokens, hidden: xr.DataArray | None) -> xr.Dataset:
    """Per-token fields as variables: attributes have a size limit, texts do not."""
    variables: dict[str, tuple[str | tuple[str, str], np.ndarray]] = {
        "texts": ("text", _strings(tokens.texts)),
        "tokens": ("query", _strings(tokens.tokens)),
        "word_texts": ("word", _strings(tokens.word_texts)),
    }
    for name in FLAGS:
        variables[name] = ("query", np.array(getattr(tokens, name), dtype=np.int8))
    for name in NUMBERS:
        variables[name] = ("query", np.array(getattr(tokens, name), dtype=np.int64))
    if tokens.offsets is not None:
        offsets = np.array(tokens.offsets, dtype=np.int64).reshape(-1, 2)
        variables["offsets"] = (("query", "edge"), offsets)
    if tokens.pieces:
        variables["pieces"] = (("query", "field"), piece_table(tokens.pieces))
    dataset = xr.Dataset(variables)
    return dataset if hidden is None else dataset.assign(hidden=hidden)


def _tokens(data: xr.Dataset) -> Tokens:
    special, generated = (tuple(bool(x) for x in data[name].values) for name in FLAGS)
    ids, segments, words = (tuple(int(x) for x in data[name].values) for name in NUMBERS)
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
        pieces=read_pieces(data["pieces"].values) if "pieces" in data else (),
    )


def _strings(texts: tuple[str, ...]) -> np.ndarray:
    """JSON strings: netCDF's own cannot hold NUL characters or lone surrogates."""
    return np.array([json.dumps(text) for text in texts], dtype=object)


def _text_tuple(array: xr.DataArray) -> tuple[str, ...]:
    return tuple(json.loads(str(x)) for x in array.values)
