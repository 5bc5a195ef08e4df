"""Documents of one batch with their annotations, as NumPy arrays that metrics sum over.

A batch is made once and shared by all layers. Models neither make nor read it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

import numpy as np

from headscope.attention import key_stack, query_stack
from headscope.text.document import Document

NullKeys = Literal["auto", "first", "special"]
"""Keys of null attention: the first token, every special token, or (`auto`) the first in causal
attention and the special ones otherwise."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Axes:
    """Labels that number tags, relations and groups, fixed for a whole run.

    Documents are hashed into `buckets_per_group` buckets of each group, pieces of one document
    together. Buckets therefore do not depend on shards. States are kept per bucket: intervals and
    tests compare buckets.
    """

    tags: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    groups: tuple[str, ...] = ("",)
    """Values of the grouping key (genres); one empty name without groups."""
    buckets_per_group: int = 64
    key_classes: tuple[str, ...] = ()
    """Names of the classes of keys (`headscope.text.tokens`)."""
    buckets: tuple[int, ...] = ()
    """Numbers of the buckets in states, in order; those of group g start at `g *
    buckets_per_group`. Empty for all: with many groups, most buckets are empty."""

    @property
    def n_buckets(self) -> int:
        """Number of buckets in states."""
        return len(self.bucket_numbers)

    @property
    def bucket_numbers(self) -> np.ndarray:
        """`bucket`: number among the buckets of all groups."""
        numbers = np.arange(len(self.groups) * self.buckets_per_group)
        return np.array(self.buckets, dtype=np.int64) if self.buckets else numbers

    @property
    def groups_of_buckets(self) -> np.ndarray:
        """`bucket`: number of the group."""
        return self.bucket_numbers // self.buckets_per_group

    @property
    def units(self) -> np.ndarray:
        """`bucket`: number within its group. Estimates over all groups pool equal numbers."""
        return self.bucket_numbers % self.buckets_per_group

    def bucket_of(self, group: str, number: int) -> int:
        """Return the bucket of a document from its group and hash number."""
        bucket = self.groups.index(group) * self.buckets_per_group + number % self.buckets_per_group
        return bisect_left(self.buckets, bucket) if self.buckets else bucket

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-serializable dict."""
        values = {name: getattr(self, name) for name in self.__slots__}
        if not self.buckets:
            del values["buckets"]
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Axes:
        """Return the axes of `to_dict`; missing entries have their defaults."""
        items = ((name, values[name]) for name in cls.__slots__ if name in values)
        fields: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in items}
        return cls(**fields)


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """Token sequences of one stack, `document token`, padded to the longest."""

    mask: np.ndarray
    """True for tokens, false for padding."""
    special: np.ndarray
    """True for tokens that the tokenizer added."""
    words: np.ndarray
    """Number of the token's word, -1 for none."""
    parents: np.ndarray
    """Number of the parent of the token's word, negative for none."""
    tags: np.ndarray
    """Index of the word's tag in `Axes.tags`, -1 for none."""
    relations: np.ndarray
    """Index of the word's relation in `Axes.relations`, -1 for none."""
    is_tagged: np.ndarray
    """`document`: true with tags. Documents without are left out of metrics of tags."""
    is_parsed: np.ndarray
    """`document`: true with a tree."""
    ids: np.ndarray | None = None
    """Token ids; None if unknown."""
    classes: np.ndarray | None = None
    """`document token class`: membership in each of `Axes.key_classes`."""
    left_out: np.ndarray | None = None
    """Number of the token's word that has too many tokens, -1 for none; None without such words.
    Such tokens are not in `mask`, and attention to and from them is 0."""

    context: np.ndarray | None = None
    """True for tokens that are read but not counted as queries, because another window counts
    them; None without windows."""

    @property
    def asking(self) -> np.ndarray:
        """`document token`: true for tokens that count as queries."""
        return self.mask if self.context is None else self.mask & ~self.context

    @classmethod
    def plain(cls, mask: np.ndarray, special: np.ndarray | None = None) -> Sequences:
        """Return sequences without labels."""
        none = np.full(mask.shape, -1, dtype=np.int64)
        no = np.zeros(len(mask), dtype=bool)
        special = np.zeros(mask.shape, dtype=bool) if special is None else special
        return cls(mask, special, none, none, none, none, no, no)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Documents of one batch."""

    axes: Axes
    stacks: Mapping[str, Sequences]
    """Token sequences by name: `self`, or `encoder` and `decoder`."""
    numbers: np.ndarray
    """`document`: number in the corpus."""
    sample_hashes: np.ndarray
    """`document`: hash of the content, in [0, 1)."""
    buckets: np.ndarray
    """`document`: number of its bucket."""
    null_keys: NullKeys = "auto"
    losses: np.ndarray | None = None
    """`document 2`: sum of the cross-entropies of predicted tokens, and their number; only with a
    loss."""
    documents: tuple[Document, ...] = ()
    """Documents with annotations that are not in `stacks` (mentions); may be empty."""
    is_cut: np.ndarray | None = None
    """`document`: true if its end was cut to fit the model; None if no document was."""
    is_compiled: bool = False
    """True if metrics may use compiled loops (`headscope.metrics.core.compiled`). Fixed for a run,
    because the last bits differ."""
    facts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Counts over the whole corpus that metrics requested, by name."""
    last_hashes: Mapping[int, float] = field(default_factory=dict)
    """Largest hash of a sample of the corpus, by its size (`Metric.sample`); empty if unknown."""
    derived: dict[Hashable, object] = field(default_factory=dict, repr=False)
    """Results computed from the batch alone, shared by metrics and layers."""

    def __len__(self) -> int:
        return len(self.numbers)

    def once(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make`, computed at the first use."""
        if name not in self.derived:
            self.derived[name] = make()
        return cast("T", self.derived[name])

    @property
    def n_left_out(self) -> int:
        """Number of words left out for too many tokens, in the first stack."""
        words = next(iter(self.stacks.values())).left_out
        return 0 if words is None else sum(len(np.unique(row[row >= 0])) for row in words)

    def query_sequences(self, block: str) -> Sequences:
        """Return the tokens that attend in a block."""
        return self.stacks[query_stack(block, self.stacks)]

    def key_sequences(self, block: str) -> Sequences:
        """Return the tokens attended to in a block."""
        return self.stacks[key_stack(block, self.stacks)]
