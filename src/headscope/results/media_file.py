"""Images, recordings and what tokens are of them, as variables of a trace's file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from headscope.errors import FileFormatError
from headscope.results.media import Media
from headscope.text.pieces import Frame, Patch, Piece

TEXT, PATCH, FRAME = range(3)
"""The first field of a row: what the token is."""
N_FIELDS = 8
"""Kind, then image, row, column, top, left, bottom and right; or start and end."""


def media_dataset(media: Media) -> xr.Dataset:
    """Images and the recording as variables."""
    variables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        f"image_{number}": ((f"row_{number}", f"column_{number}", "color"), image)
        for number, image in enumerate(media.images)
    }
    if media.sound is not None:
        variables["sound"] = (("sample",), media.sound.astype(np.float32))
    return xr.Dataset(variables, attrs={"rate": media.rate, "images": len(media.images)})


def read_media(data: xr.Dataset) -> Media:
    """What `media_dataset` wrote; `Media` refuses what is no image and no recording."""
    images = tuple(
        np.asarray(data[f"image_{number}"].values) for number in range(int(data.attrs["images"]))
    )
    sound = np.asarray(data["sound"].values) if "sound" in data else None
    return Media(images, sound, int(data.attrs["rate"]))


def piece_table(pieces: Sequence[Piece | None]) -> np.ndarray:
    """A row of numbers for each token."""
    table = np.zeros((len(pieces), N_FIELDS))
    for row, piece in zip(table, pieces, strict=True):
        if isinstance(piece, Patch):
            edges = (piece.top, piece.left, piece.bottom, piece.right)
            row[:] = (PATCH, piece.image, piece.row, piece.column, *edges)
        elif isinstance(piece, Frame):
            row[:3] = (FRAME, piece.start, piece.end)
    return table


def read_pieces(table: np.ndarray) -> tuple[Piece | None, ...]:
    """What `piece_table` wrote."""
    if table.ndim != 2 or table.shape[1] != N_FIELDS or not np.isfinite(table).all():
        raise FileFormatError(f"Pieces have shape {table.shape}; expected (token, {N_FIELDS}).")
    return tuple(_piece([float(x) for x in row]) for row in table)


def _piece(row: Sequence[float]) -> Piece | None:
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
