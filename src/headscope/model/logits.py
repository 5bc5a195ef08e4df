"""Predictions from logits: top tokens or labels, their probabilities and names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig
from transformers.utils.generic import ModelOutput

from headscope.arguments import as_integer
from headscope.errors import InputError, UnknownName
from headscope.model.encode import Speller
from headscope.results.predictions import WHOLE_TEXT, Predicted, Predictions
from headscope.text.tokens import Tokens

if TYPE_CHECKING:
    from headscope.model.info import Objective
    from headscope.model.model import Model

N_ANSWERS = 10
LOGIT_ROWS = 64
"""Positions whose logits are sorted at a time, because vocabularies are large."""
KINDS: dict[Objective, Predicted] = {
    "causal": "next",
    "seq2seq": "next",
    "masked": "mask",
    "label": "label",
    "token_label": "token_label",
}


def read_predictions(
    model: Model, outputs: ModelOutput, stacks: Mapping[str, Tokens], n_last: int | None = None
) -> Predictions | None:
    """Return the top predictions for one input; None for a model without logits.

    `n_last` is the number of logits that were computed, for the last tokens; None for all tokens.
    """
    logits = getattr(outputs, "logits", None)
    objective = model.info.objective
    if objective is None or not isinstance(logits, Tensor) or logits.shape[0] != 1:
        return None
    kind = KINDS[objective]
    rows = logits[0] if logits.ndim == 3 else logits
    # A speech model may generate without a decoder stack.
    tokens = stacks.get("decoder") or next(iter(stacks.values()))
    if kind == "label":
        positions, shown = [WHOLE_TEXT], [""]
    else:
        if len(rows) != (n_last or len(tokens)):  # images among the tokens, pooled sequences
            return None
        positions = list(range(len(tokens) - len(rows), len(tokens)))
        if kind == "mask":
            if model.tokenizer is None:  # the mask token is unknown
                return None
            mask = model.tokenizer.mask_token_id
            positions = [i for i in positions if tokens.ids[i] == mask]
        shown = [tokens.tokens[i] for i in positions]
        rows = rows if n_last else rows[positions]
    n = min(N_ANSWERS, rows.shape[-1])
    parts: list[tuple[Tensor, Tensor, Tensor]] = [
        (rows.new_zeros((0, n), dtype=torch.long), rows.new_zeros((0, n)), rows.new_zeros((0, n)))
    ]
    for some in rows.split(LOGIT_ROWS):
        logits = some.float()
        best = logits.topk(n, dim=-1)
        if not has_probabilities(model):
            shares = torch.full_like(best.values, float("nan"))
        elif are_exclusive(model):
            shares = logits.log_softmax(-1).gather(-1, best.indices).exp()
        else:
            shares = logits.sigmoid().gather(-1, best.indices)
        parts.append((best.indices, best.values, shares))
    ids, values, probabilities = (
        torch.cat(columns).cpu().numpy() for columns in zip(*parts, strict=True)
    )
    names = answer_names(model, kind, ids.ravel().tolist())
    return Predictions.of(
        kind,
        positions=positions,
        at=shown,
        tokens=[names[start : start + n] for start in range(0, len(names), n)],
        ids=ids.astype(np.int64),
        logits=values.astype(np.float32),
        probabilities=probabilities.astype(np.float32),
    )


def has_probabilities(model: Model) -> bool:
    """True if the model's output has probabilities; False for a regression score."""
    config = model.module.config
    is_score = config.problem_type == "regression" or len(label_names(config)) == 1
    return not (model.info.objective == "label" and is_score)


def are_exclusive(model: Model) -> bool:
    """True if answers are mutually exclusive, as tokens are; labels of a text may not be."""
    is_loose = model.module.config.problem_type == "multi_label_classification"
    return not (model.info.objective == "label" and is_loose)


def answer_names(model: Model, kind: Predicted, ids: list[int]) -> list[str]:
    """Return readable tokens, or labels."""
    if kind in ("label", "token_label"):
        names = label_names(model.module.config)
        return [names.get(i, str(i)) for i in ids]
    if model.tokenizer is None:
        return [str(i) for i in ids]
    return list(Speller(model.tokenizer).spell(ids))


def label_names(config: PretrainedConfig) -> dict[int, str]:
    """Return the labels by number."""
    return {int(number): str(name) for number, name in (config.id2label or {}).items()}


def find_answer(model: Model, answer: str | int, name: str = "target") -> int:
    """Return the id of a label or token; raise InputError unless it is exactly one."""
    objective = model.require_objective(f"{name}={answer!r}")
    number = as_integer(answer)
    if objective in ("label", "token_label"):
        labels = label_names(model.module.config)
        if number in labels:
            return number
        for i, label in labels.items():
            if label == answer:
                return i
        raise UnknownName.of("label", answer, labels.values())
    if number is not None:
        n = model.module.config.get_text_config().vocab_size
        if not 0 <= number < n:
            raise InputError(f"{name}={number} is not a token id of {model.name}: 0 to {n - 1}.")
        return number
    if not isinstance(answer, str) or not answer:
        raise InputError(f"{name} should be a token, as text or by its id, not {answer!r}.")
    tokenizer = model.require_tokenizer()
    ids: list[int] = tokenizer.encode(answer, add_special_tokens=False)
    if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
        return ids[0]
    shown = ", ".join(repr(token) for token in Speller(tokenizer).spell(ids))
    if len(ids) == 1:
        raise InputError(f"{name}={answer!r} is not in the vocabulary of {model.name} ({shown}).")
    advice = "Give one token. Most tokens that begin a word begin with a space, as ' Paris' does."
    spaced = f" {answer}"
    if answer[0] != " " and len(tokenizer.encode(spaced, add_special_tokens=False)) == 1:
        advice = f"With a space before it, {spaced!r}, it is one token."
    raise InputError(
        f"{name}={answer!r} is {len(ids)} tokens of {model.name}: {shown or '(none)'}. A "
        f"prediction is of one token. {advice}"
    )
