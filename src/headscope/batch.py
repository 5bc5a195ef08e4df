"""What is known about the documents of one batch: the annotations metrics sum over.

Plain NumPy, one row per document, made once per batch and shared by all its layers. It
goes to metrics beside the attention; models neither make nor read it.
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
"""Which keys are null attention: the first token, every special token, or (`auto`) the
first in causal attention and the special ones otherwise."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Axes:
    """The labels that number tags, relations and groups, fixed for a whole run.

    Documents are dealt into `buckets_per_group` buckets of each group by a hash of their content,
    the pieces of one document together, so the buckets do not depend on how a corpus is cut into
    shards. States are kept per bucket: intervals and tests compare buckets.
    """

    tags: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    groups: tuple[str, ...] = ("",)
    """Values of what documents are grouped by (genres); one empty name without groups."""
    buckets_per_group: int = 64
    key_classes: tuple[str, ...] = ()
    """Names of the classes that keys are counted by (`headscope.text.token_classes`)."""
    buckets: tuple[int, ...] = ()
    """Numbers of the buckets that states have, in order: those of group g are from
    `g * parts_per_group` on. Empty for all; with many groups, most would hold nothing."""

    @property
    def n_buckets(self) -> int:
        """How many buckets states have."""
        return len(self.bucket_numbers)

    @property
    def bucket_numbers(self) -> np.ndarray:
        """`bucket`: its number among those of all groups."""
        every = np.arange(len(self.groups) * self.buckets_per_group)
        return np.array(self.buckets, dtype=np.int64) if self.buckets else every

    @property
    def groups_of_buckets(self) -> np.ndarray:
        """`bucket`: the number of its group."""
        return self.bucket_numbers // self.buckets_per_group

    @property
    def units(self) -> np.ndarray:
        """`bucket`: its number within its group. Parts of the same number are taken together where
        groups do not matter: intervals do not depend on what a run was grouped by.
        """
        return self.bucket_numbers % self.buckets_per_group

    def bucket_of(self, group: str, number: int) -> int:
        """Where a document of a group goes, by the number that its hash gives."""
        place = self.groups.index(group) * self.buckets_per_group + number % self.buckets_per_group
        return bisect_left(self.buckets, place) if self.buckets else place

    def to_dict(self) -> dict[str, object]:
        """As JSON can hold it."""
        values = {name: getattr(self, name) for name in self.__slots__}
        if not self.buckets:
            del values["buckets"]
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Axes:
        """What `to_dict` gave; older files lack what came later."""
        known = ((name, values[name]) for name in cls.__slots__ if name in values)
        fields: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in known}
        return cls(**fields)


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """The token sequences of one stack, `document token`, padded to the longest."""

    mask: np.ndarray
    """True for tokens, false for padding."""
    special: np.ndarray
    """True for tokens the tokenizer added."""
    words: np.ndarray
    """Number of the token's word, -1 for none."""
    parents: np.ndarray
    """Number of the word that is the parent of the token's word, negative for none."""
    tags: np.ndarray
    """Index of the word's tag in `Axes.tags`, -1 for none."""
    relations: np.ndarray
    """Index of the word's relation in `Axes.relations`, -1 for none."""
    is_tagged: np.ndarray
    """`document`: has it tags at all? Those without are left out of metrics of tags."""
    is_parsed: np.ndarray
    """`document`: has it a tree at all?"""
    ids: np.ndarray | None = None
    """Numbers that are equal where tokens are; None where they are not known."""
    classes: np.ndarray | None = None
    """`document token class`: is the token of each of `Axes.key_classes`?"""

    @classmethod
    def plain(cls, mask: np.ndarray, special: np.ndarray | None = None) -> Sequences:
        """Sequences of which nothing else is known."""
        none = np.full(mask.shape, -1, dtype=np.int64)
        no = np.zeros(len(mask), dtype=bool)
        special = np.zeros(mask.shape, dtype=bool) if special is None else special
        return cls(mask, special, none, none, none, none, no, no)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The documents of one batch."""

    axes: Axes
    stacks: Mapping[str, Sequences]
    """By name: `self`, or `encoder` and `decoder`."""
    numbers: np.ndarray
    """`document`: its number in the corpus."""
    keys: np.ndarray
    """`document`: a hash of its content, in [0, 1)."""
    buckets: np.ndarray
    """`document`: which bucket it was dealt into."""
    null_keys: NullKeys = "auto"
    losses: np.ndarray | None = None
    """`document 2`: the sum of the cross-entropies of its predicted tokens, and how many;
    only where the model was asked for them."""
    documents: tuple[Document, ...] = ()
    """The documents themselves, for what is not in `stacks` (mentions); empty where the
    attention came without any."""
    is_cut: np.ndarray | None = None
    """`document`: was its end left out, to fit the model? None where none was."""
    is_compiled: bool = False
    """May metrics use compiled loops (`headscope.metrics.core.compiled`)? A run decides it once:
    the last bits differ."""
    facts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What metrics asked to be counted in the whole corpus, by their names for it."""
    last_keys: Mapping[int, float] = field(default_factory=dict)
    """No document with a larger key will be among so many of the corpus with the smallest
    (`Metric.sample`); empty where the corpus is not known."""
    derived: dict[Hashable, object] = field(default_factory=dict, repr=False)
    """What metrics computed from the batch alone, shared by them and by all layers."""

    def __len__(self) -> int:
        return len(self.numbers)

    def once(self, name: Hashable, make: Callable[[], T]) -> T:
        """What `make` returns, made at the first use."""
        if name not in self.derived:
            self.derived[name] = make()
        return cast("T", self.derived[name])

    def query_sequences(self, block: str) -> Sequences:
        """The tokens that attend in a block."""
        return self.stacks[query_stack(block, self.stacks)]

    def key_sequences(self, block: str) -> Sequences:
        """The tokens attended to in a block."""
        return self.stacks[key_stack(block, self.stacks)]
