"""Classes of keys: the first token, each special token, punctuation.

Clark et al. 2019, section 3.2, use [CLS], [SEP] and "." or ","; here the special tokens are those
of the model's tokenizer. Classes overlap: in BERT the first token is [CLS], and a comma is
punctuation.
"""

from __future__ import annotations

import functools
import string
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

FIRST = "first"
PERIOD_OR_COMMA = ". or ,"
PUNCTUATION = "punctuation"
REST = "rest"
"""Class of tokens that are neither special nor punctuation."""


def class_names(special: Iterable[str]) -> tuple[str, ...]:
    """Return the classes of a model whose tokenizer adds these special tokens."""
    return (FIRST, *dict.fromkeys(special), PERIOD_OR_COMMA, PUNCTUATION, REST)


def class_members(tokens: Sequence[str], special: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """`token class`: return the membership of each token.

    Args:
        tokens: tokens of one document, readable or as in the vocabulary; special ones by name.
        special: `token`, true for tokens that the tokenizer added.
        names: result of `class_names`.
    """
    members = np.zeros((len(tokens), len(names)), dtype=bool)
    if not len(tokens) or not names:
        return members
    columns = {name: number for number, name in enumerate(names)}
    rows, classes = [0], [columns[FIRST]]
    for row, (token, is_special) in enumerate(zip(tokens, special.tolist(), strict=True)):
        for name in (token,) if is_special else _classes_of(token):
            if name in columns:
                rows.append(row)
                classes.append(columns[name])
    members[rows, classes] = True
    return members


def is_repeated(shares: xr.DataArray) -> bool:
    """Return whether the first token's values equal another class, as [CLS] may."""
    (dim,) = (dim for dim in shares.dims if str(dim).endswith("class"))
    first_shares = shares.sel({dim: FIRST})
    classes = [other for other in shares[dim].values if other not in (FIRST, "all")]
    return any(np.array_equal(first_shares, shares.sel({dim: o}), equal_nan=True) for o in classes)


@functools.lru_cache(maxsize=1 << 16)
def _classes_of(token: str) -> tuple[str, ...]:
    if not is_punctuation(token):
        return (REST,)
    return (PUNCTUATION, PERIOD_OR_COMMA) if _bare(token) in (".", ",") else (PUNCTUATION,)


@functools.lru_cache(maxsize=1 << 16)
def is_punctuation(token: str) -> bool:
    """Return whether a token is only punctuation, by Unicode or ASCII."""
    bare = _bare(token)
    return bool(bare) and all(
        c in string.punctuation or unicodedata.category(c).startswith("P") for c in bare
    )


def _bare(token: str) -> str:
    """Return the token without the vocabulary's marks of word starts."""
    token = token.strip().lstrip("Ġ▁").strip()
    return token[2:] if token.startswith("##") and len(token) > 2 else token
