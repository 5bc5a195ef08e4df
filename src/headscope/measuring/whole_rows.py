"""What Clark et al.'s surface metrics share: all tokens count, and there are two weightings.

Unlike the region of Vig & Belinkov, every token is a query and every token a key: special
tokens are what these metrics are about.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, final, get_args

import numpy as np

from headscope.deferred import torch
from headscope.errors import UnknownName
from headscope.measuring.ratio import RatioMetric
from headscope.measuring.reading import Digest, Reading
from headscope.measuring.region import everything
from headscope.measuring.region_sums import whole_masses

if TYPE_CHECKING:
    from torch import Tensor

Weighting = Literal["token", "document"]
"""`token`: ratios of sums over all tokens. `document`: means of the documents' own ratios, as in
the code that Clark et al. released."""


@dataclass(frozen=True)
class SurfaceMetric(RatioMetric):
    """A ratio over all tokens. Subclasses write `sums`."""

    name: ClassVar[str]
    weighting: Weighting = "token"

    def __post_init__(self) -> None:
        if self.weighting not in get_args(Weighting):
            raise UnknownName.of("weighting", self.weighting, get_args(Weighting))

    @property
    def digests(self) -> tuple[Digest, ...]:
        """Sums of rows and columns; most need more."""
        return (whole_masses,)

    @property
    def averaged(self) -> str:
        """Over tokens, or over documents' own ratios."""
        return super().averaged if self.weighting == "token" else "mean of the documents' ratios"

    @abstractmethod
    def sums(self, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
        """As `RatioMetric.rows`, weighted by token."""

    @final
    def rows(self, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
        """The sums; if weighted by document, each document's ratio, and 1 where it has one."""
        numerator, denominator, count = self.sums(reading)
        if self.weighting == "token":
            return numerator, denominator, count
        has = (denominator > 0).double()
        missing = numerator.ndim - denominator.ndim
        shape = denominator.shape + (1,) * missing
        safe = torch.where(denominator > 0, denominator, 1.0).view(shape)
        return numerator / safe * has.view(shape), has, count


def is_query(reading: Reading) -> Tensor:
    """`document query`: every token, as 0 and 1 in the type of the weights."""
    return everything(reading).queries


def query_masses(reading: Reading) -> Tensor:
    """`document head query`: what each row sums to (1, except with sinks and edits), float64. It
    reads the digest `whole_masses`.
    """
    return whole_masses(reading)[0]


def first_positions(mask: np.ndarray) -> np.ndarray:
    """`document`: where each document starts."""
    return np.asarray(mask.argmax(axis=1))
