"""Readouts: the number that heads affect, such as a logit difference or a loss."""

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
from headscope.results.effect_data import COSINE_DISTANCE
from headscope.text.tokens import Tokens

Pooling = Literal["mean", "first"]
Measure = Literal["logit", "logprob"]
MEASURES: tuple[Measure, ...] = ("logit", "logprob")


class Readout(ABC):
    """One number for each row of a batch, read off a model's output."""

    position: int | None = None
    """Only position whose logits are read; None for all."""

    @abstractmethod
    def read(self, outputs: ModelOutput, logits: Tensor | None) -> Tensor:
        """Return `row`. `logits` are `row answer` at the position, if there is one."""

    def describe(self) -> dict[str, str | int | float]:
        """Return the attributes of results."""
        return {}

    @property
    def question(self) -> tuple[object, object]:
        """Target and foil that give the same number for another model."""
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
    """Whether answers exclude one another: true of tokens, not of all labels."""

    @property
    def question(self) -> tuple[object, object]:
        """Numbers of the two answers."""
        return self.target, False if self.foil is None else self.foil

    def read(self, outputs: ModelOutput, logits: Tensor | None) -> Tensor:
        """Return the difference of two logits, or a log-probability."""
        assert logits is not None
        rows = logits.float()
        if self.measure == "logprob":
            return log_probabilities(rows, excludes=self.excludes)[:, self.target]
        value = rows[:, self.target]
        return value if self.foil is None else value - rows[:, self.foil]

    def describe(self) -> dict[str, str | int | float]:
        """Return target, foil, measure and position."""
        target, foil = (repr(name) for name in self.names)
        names = {"logprob": f"log p({target})", "logit": f"logit({target})"}
        name = names[self.measure]
        if self.measure == "logit" and self.foil is not None:
            name += f" − logit({foil})"
        attributes: dict[str, str | int | float] = {
            "measure": self.measure,
            "number": name,
            "target": self.names[0],
            "units": "logits" if self.measure == "logit" else "nats",
        }
        if self.foil is not None:
            attributes["foil"] = self.names[1]
        if self.position is not None:
            attributes["position"] = self.position
        return attributes


@final
@dataclass(frozen=True, eq=False)
class CosineShift(Readout):
    """Cosine distance between the text's vector in a row and in the unedited text."""

    vector: Tensor = field(repr=False)
    pooling: Pooling = "mean"

    def read(self, outputs: ModelOutput, logits: Tensor | None) -> Tensor:
        """Return 1 − cosine: 0 for the same direction, 2 for the reverse."""
        return 1 - functional.cosine_similarity(pooled(outputs, self.pooling), self.vector, dim=-1)

    def describe(self) -> dict[str, str | int | float]:
        """Return the measure and the pooling."""
        pool = "mean over tokens" if self.pooling == "mean" else "first token"
        return {"measure": COSINE_DISTANCE, "number": f"1 − cosine of the text's vector ({pool})",
                "pooling": self.pooling, "units": "1 − cosine"}  # fmt: skip


@final
@dataclass(frozen=True, eq=False)
class CustomScalar(Readout):
    """Function of the model's output, from the user."""

    scalar: Scalar

    @property
    def question(self) -> tuple[object, object]:
        """Function of the output."""
        return self.scalar, None

    def read(self, outputs: ModelOutput, logits: Tensor | None) -> Tensor:
        """Return one number for each row."""
        rows = next(value for value in outputs.to_tuple() if isinstance(value, Tensor)).shape[0]
        return scalar_values(self.scalar, outputs, rows)

    def describe(self) -> dict[str, str | int | float]:
        """Return the function's name."""
        name = getattr(self.scalar, "__name__", "scalar")
        return {"measure": "scalar", "number": name, "units": "units of the function"}


@final
@dataclass(frozen=True, eq=False)
class LossSum(Readout):
    """Sum of a document's cross-entropies."""

    labels: Tensor
    """`1 position`: ids to predict."""

    def read(self, outputs: ModelOutput, logits: Tensor | None) -> Tensor:
        """Return the sum of each row, in nats."""
        scores: Tensor = outputs["logits"]
        return losses_of(scores, self.labels.expand(len(scores), -1))[:, 0]

    def describe(self) -> dict[str, str | int | float]:
        """Return the measure and its units."""
        return {"measure": "loss", "number": "loss of the model's own objective", "units": "nats"}


def pooled(outputs: ModelOutput, pooling: Pooling) -> Tensor:
    """Return `row unit`: the vector of each text."""
    hidden: Tensor = outputs["last_hidden_state"]
    return hidden.mean(1) if pooling == "mean" else hidden[:, 0]


def log_probabilities(rows: Tensor, *, excludes: bool) -> Tensor:
    """Return log p of all answers: log softmax, or log sigmoid if answers may be true together."""
    return rows.log_softmax(-1) if excludes else functional.logsigmoid(rows)


def require_two_tokens(stacks: Mapping[str, Tokens]) -> None:
    """Raise InputError for a text of one token, whose heads attend only to it."""
    stack = next(iter(stacks.values()))
    if len(stack) < 2:
        raise InputError(
            f"The text is one token, {stack.tokens[0]!r}, which attends to nothing but itself. "
            "Give a longer text."
        )


def place_of(name: str, position: int, n: int) -> int:
    """Return a position counted from 0; negative positions count from the end."""
    index = as_integer(position)
    if index is None:
        raise InputError(f"{name} should be a whole number, not {position!r}.")
    if not -n <= index < n:
        raise InputError(
            f"{name}={index} is out of range: the text has {n} tokens, {-n} to {n - 1}."
        )
    return index % n


def check_finite(model: Model, readout: Readout, value: np.ndarray) -> None:
    """Raise InputError if the readout is not finite: every effect on it would be NaN."""
    if np.isnan(value).any() or not np.isfinite(value).any():
        number = readout.describe().get("number", "The readout")
        raise InputError(
            f"{number} is {value.ravel()[0]} for this text: {model.name} puts out numbers that are "
            "not finite. Look for NaN or infinity in its weights; in float16 large numbers "
            "overflow, so load it in float32."
        )


def find_position(model: Model, stacks: Mapping[str, Tokens], position: int) -> int | None:
    """Return the index of the logits for a position; None for a label of the whole text. −1 is the
    last mask in a masked model, the last token that is not special in a token classifier.
    """
    objective = model.require_objective("An effect on a prediction")
    if objective == "label":
        return None
    stack = stacks["decoder"] if objective == "seq2seq" else next(iter(stacks.values()))
    n = len(stack)
    index = place_of("position", position, n)
    if objective == "token_label" and position == -1:
        return max((i for i, special in enumerate(stack.special) if not special), default=index)
    if objective == "masked" and position == -1:
        mask = model.require_tokenizer().mask_token_id
        masks = [i for i, token in enumerate(stack.ids) if token == mask]
        if not masks:
            raise InputError(
                f"The text has no mask token ({model.require_tokenizer().mask_token}), so "
                f"{model.name} predicts nothing in it. Write one, or give a position."
            )
        return masks[-1]
    return index


def find_answers(
    model: Model,
    logits: Tensor,
    target: str | int | None,
    foil: str | int | bool | None,
    measure: str,
    position: int | None,
) -> LogitDifference:
    """Find target and foil by the logits (`answer`) of the unedited text; by default the top 2."""
    if measure not in MEASURES:
        raise UnknownName.of("measure", measure, MEASURES)
    top = logits.argsort(descending=True)[:3].tolist()
    number = top[0] if target is None else find_answer(model, target)
    other: int | None = None
    if measure == "logprob" and not has_probabilities(model):
        raise InputError(
            f"{model.name} predicts a score, which has no probability: leave measure='logprob' out."
        )
    if measure == "logit" and foil is not False:
        others = [answer for answer in top if answer != number]
        other = next(iter(others), None) if foil is None else find_answer(model, foil, "foil")
        if other == number:
            raise InputError(f"target and foil are both {target!r}: their difference is always 0.")
    elif measure == "logprob" and foil not in (None, False):
        raise InputError("log p(target) has no foil: leave it out, or pass measure='logit'.")
    return make_answer(model, number, other, measure, position)


def make_answer(
    model: Model, target: int, foil: int | None, measure: Measure, position: int | None
) -> LogitDifference:
    """Return the readout of two answers given by number."""
    kind = KINDS[model.require_objective("An effect on a prediction")]
    names = answer_names(model, kind, [target, target if foil is None else foil])
    return LogitDifference(
        target, foil, measure, (names[0], names[1]), position, are_exclusive(model)
    )


def make_contrast(
    model: Model,
    texts: tuple[str, str],
    answers: tuple[str | int | None, str | int | None],
    logits: tuple[Tensor, Tensor],
    position: int | None,
) -> LogitDifference:
    """Return the readout of a pair of texts; its answers are by default their top predictions."""
    names = ("target", "foil")
    target, foil = (
        int(scores.argmax()) if answer is None else find_answer(model, answer, name)
        for answer, scores, name in zip(answers, logits, names, strict=True)
    )
    if target == foil:
        kind = KINDS[model.require_objective("An effect on a prediction")]
        raise InputError(
            f"The two texts {texts[0]!r} and {texts[1]!r} have the same answer, "
            f"{answer_names(model, kind, [target])[0]!r}: give a target and a foil that differ."
        )
    return make_answer(model, target, foil, "logit", position)
