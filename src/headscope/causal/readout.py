"""The number that heads have an effect on: a logit, a log-probability, a loss, any scalar."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, final

import numpy as np
from torch import Tensor
from torch.nn import functional
from transformers.utils.generic import ModelOutput

from headscope.arguments import as_integer
from headscope.errors import InputError, UnknownName
from headscope.model.logits import (
    KINDS,
    answer_names,
    are_exclusive,
    find_answer,
    has_probabilities,
)
from headscope.model.model import Model
from headscope.model.objective import Scalar, losses_of, scalar_values
from headscope.text.tokens import Tokens

Pooling = Literal["mean", "first"]
Measure = Literal["logit", "logprob"]
MEASURES: tuple[Measure, ...] = ("logit", "logprob")


class Readout(ABC):
    """One number for each row of a batch, read off a model's output."""

    position: int | None = None
    """The only position whose logits are read; None where all are."""

    @abstractmethod
    def read(self, outputs: ModelOutput, logits: Tensor | None) -> Tensor:
        """`row`. `logits` are `row answer` at the position, where there is one."""

    @abstractmethod
    def describe(self) -> dict[str, str | int | float]:
        """What the number is, for the attributes of results."""

    @property
    def question(self) -> tuple[object, object]:
        """Target and foil by which the same number is asked of another model."""
        return None, None


@final
@dataclass(frozen=True)
class LogitDifference(Readout):
    """logit(target) − logit(foil), or log p(target), at one position."""

    target: int
    foil: int | None
    measure: Measure
    names: tuple[str, str]
    position: int | None
    excludes: bool = True
    """Do the answers exclude one another, as tokens do? Labels of a text may not."""

    @property
    def question(self) -> tuple[object, object]:
        """The same two answers, by number."""
        return self.target, False if self.foil is None else self.foil

    def read(self, outputs: ModelOutput, logits: Tensor | None) -> Tensor:
        """The difference of two logits, or a log-probability."""
        assert logits is not None
        rows = logits.float()
        if self.measure == "logprob":
            logs = rows.log_softmax(-1) if self.excludes else functional.logsigmoid(rows)
            return logs[:, self.target]
        value = rows[:, self.target]
        return value if self.foil is None else value - rows[:, self.foil]

    def describe(self) -> dict[str, str | int | float]:
        """Target, foil, measure and position."""
        target, foil = (repr(name) for name in self.names)
        names = {"logprob": f"log p({target})", "logit": f"logit({target})"}
        name = names[self.measure]
        if self.measure == "logit" and self.foil is not None:
            name += f" − logit({foil})"
        about: dict[str, str | int | float] = {
            "measure": self.measure,
            "number": name,
            "target": self.names[0],
            "units": "logits" if self.measure == "logit" else "nats",
        }
        if self.foil is not None:
            about["foil"] = self.names[1]
        if self.position is not None:
            about["position"] = self.position
        return about


@final
@dataclass(frozen=True, eq=False)
class CosineShift(Readout):
    """1 − cosine between the text's vector in a row and as it is: how far it turns."""

    vector: Tensor = field(repr=False)
    pooling: Pooling = "mean"

    def read(self, outputs: ModelOutput, logits: Tensor | None) -> Tensor:
        """0 where the vector keeps its direction, 2 where it is reversed."""
        return 1 - functional.cosine_similarity(pooled(outputs, self.pooling), self.vector, dim=-1)

    def describe(self) -> dict[str, str | int | float]:
        """How tokens are pooled."""
        pool = "mean over tokens" if self.pooling == "mean" else "first token"
        return {"measure": "turn", "number": f"1 − cosine of the text's vector ({pool})",
                "pooling": self.pooling, "units": "1 − cosine"}  # fmt: skip


@final
@dataclass(frozen=True, eq=False)
class CustomScalar(Readout):
    """A user's function of the model's output."""

    scalar: Scalar

    @property
    def question(self) -> tuple[object, object]:
        """The same function."""
        return self.scalar, None

    def read(self, outputs: ModelOutput, logits: Tensor | None) -> Tensor:
        """One number for each row."""
        rows = next(value for value in outputs.to_tuple() if isinstance(value, Tensor)).shape[0]
        return scalar_values(self.scalar, outputs, rows)

    def describe(self) -> dict[str, str | int | float]:
        """The function's name."""
        name = getattr(self.scalar, "__name__", "scalar")
        return {"measure": "scalar", "number": name, "units": "units of the function"}


@final
@dataclass(frozen=True, eq=False)
class LossSum(Readout):
    """The sum of a document's cross-entropies."""

    labels: Tensor
    """`1 position`."""

    def read(self, outputs: ModelOutput, logits: Tensor | None) -> Tensor:
        """In nats."""
        scores: Tensor = outputs["logits"]
        return losses_of(scores, self.labels.expand(len(scores), -1))[:, 0]

    def describe(self) -> dict[str, str | int | float]:
        """The loss."""
        return {"measure": "loss", "number": "loss of the model's own objective", "units": "nats"}


def pooled(outputs: ModelOutput, pooling: Pooling) -> Tensor:
    """`row unit`: the vector of each text."""
    hidden: Tensor = outputs["last_hidden_state"]
    return hidden.mean(1) if pooling == "mean" else hidden[:, 0]


def refuse_one_token(stacks: Mapping[str, Tokens]) -> None:
    """Refuse a text of one token: its heads have no choice where to look."""
    stack = next(iter(stacks.values()))
    if len(stack) < 2:
        raise InputError(
            f"The text is one token, {stack.tokens[0]!r}, which attends to nothing but itself. "
            "Give a longer text."
        )


def place_of(name: str, position: int, n: int) -> int:
    """A position from 0 on; negative ones count from the end."""
    at = as_integer(position)
    if at is None:
        raise InputError(f"{name} should be a whole number, not {position!r}.")
    if not -n <= at < n:
        raise InputError(f"{name}={at} is out of range: the text has {n} tokens, {-n} to {n - 1}.")
    return at % n


def refuse_nonsense(model: Model, readout: Readout, value: np.ndarray) -> None:
    """Refuse a number that is none: every effect on it would be NaN."""
    if np.isnan(value).any() or not np.isfinite(value).any():
        number = readout.describe().get("number", "What is read")
        raise InputError(
            f"{number} is {value.ravel()[0]} for this text: {model.name} puts out numbers that are "
            "not finite. Look for NaN or infinity in its weights; in float16 large numbers "
            "overflow, so load it in float32."
        )


def find_position(model: Model, stacks: Mapping[str, Tokens], position: int) -> int | None:
    """The row of the logits that a position means; None for a label of the whole text.

    In a masked model −1 is the last mask of the text, in a classifier of tokens the last token
    that is not special.
    """
    objective = model.require_objective("An effect on a prediction")
    if objective == "label":
        return None
    stack = stacks["decoder"] if objective == "seq2seq" else next(iter(stacks.values()))
    n = len(stack)
    at = place_of("position", position, n)
    if objective == "token_label" and position == -1:
        return max((i for i, special in enumerate(stack.special) if not special), default=at)
    if objective == "masked" and position == -1:
        mask = model.require_tokenizer().mask_token_id
        masks = [i for i, token in enumerate(stack.ids) if token == mask]
        if not masks:
            raise InputError(
                f"The text has no mask token ({model.require_tokenizer().mask_token}), so "
                f"{model.name} predicts nothing in it. Write one, or give a position."
            )
        return masks[-1]
    return at


def find_answers(
    model: Model,
    logits: Tensor,
    target: str | int | None,
    foil: str | int | bool | None,
    measure: str,
    position: int | None,
) -> LogitDifference:
    """Target and foil; by default the likeliest answer and the likeliest other one.

    Args:
        model: with a head that predicts.
        logits: `answer`, of the text as it is.
        target: a token or label.
        foil: another one; False for none.
        measure: `logit` or `logprob`.
        position: of the prediction.
    """
    if measure not in MEASURES:
        raise UnknownName.of("measure", measure, MEASURES)
    likeliest = logits.argsort(descending=True)[:3].tolist()
    number = likeliest[0] if target is None else find_answer(model, target)
    other: int | None = None
    if measure == "logprob" and not has_probabilities(model):
        raise InputError(
            f"{model.name} predicts a score, which has no probability: leave measure='logprob' out."
        )
    if measure == "logit" and foil is not False:
        others = [answer for answer in likeliest if answer != number]
        other = next(iter(others), None) if foil is None else find_answer(model, foil, "foil")
        if other == number:
            raise InputError(f"target and foil are both {target!r}: their difference is always 0.")
    elif measure == "logprob" and foil not in (None, False):
        raise InputError("log p(target) has no foil: leave it out, or pass measure='logit'.")
    return make_answer(model, number, other, measure, position)


def make_answer(
    model: Model, target: int, foil: int | None, measure: Measure, position: int | None
) -> LogitDifference:
    """The readout of two answers that are known by number."""
    kind = KINDS[model.require_objective("An effect on a prediction")]
    names = answer_names(model, kind, [target, target if foil is None else foil])
    return LogitDifference(
        target, foil, measure, (names[0], names[1]), position, are_exclusive(model)
    )
