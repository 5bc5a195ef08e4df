"""`headscope.attribute`: a logit as a sum over heads, MLPs and the embedding."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headscope.causal.effects import read_text
from headscope.causal.readout import find_answers, find_position
from headscope.causal.stream import find_norm, read_stream, refusal
from headscope.errors import InputError
from headscope.model.load import as_model
from headscope.model.model import Model

TOLERANCE = 1e-4
NOT_ONE_STACK = {
    "label": "a classifier",
    "token_label": "a classifier of tokens",
    "seq2seq": "an encoder-decoder",
}


def attribute(
    model: Model | str,
    text: str,
    target: str | int | None = None,
    foil: str | int | Literal[False] | None = None,
    *,
    position: int = -1,
) -> xr.DataArray:
    """The logit difference of a prediction as a sum: what each head, each MLP and the embedding
    write into it directly.

    logit(target) − logit(foil) = Σ over parts of norm(part) · (u_target − u_foil) + a constant,
    with the final norm's scale held as it is on this text and u the rows of the unembedding. It
    says what is written to the output directly; what a part does by way of later layers is not in
    it. It is no substitute for taking the part away (`headscope.effects`): over SmolLM2's heads
    the two correlate at about .5.

    Direct logit attribution: Elhage et al. 2021; Wang et al. 2023.

    Args:
        model: a language model that adds its parts up (GPT-2, Llama, Qwen 2, Gemma, NeoX, Phi,
            OPT, Mixtral and others), or what `headscope.load` takes.
        text: the text.
        target: a token; the likeliest by default.
        foil: another token; the likeliest other one by default, False for the target's own logit.
        position: of the prediction; the last token by default.

    Returns:
        Over `component`, which has coordinates `kind` (`embedding`, `head`, `bias`, `mlp`,
        `constant`), `layer` and `head` (−1 for none). The values sum to the logit difference,
        which is proved: `attrs["difference"]` is how far they miss it.

    Raises:
        TapUnsupported: the architecture does not allow it, with the reason.
    """
    model = as_model(model)
    objective = model.need_objective("Attribution of a prediction")
    if objective not in ("causal", "masked"):
        raise InputError(
            "Attribution is of the tokens that a language model with one stack predicts; "
            f"{model.name} is {NOT_ONE_STACK[objective]}. hs.effects works for it."
        )
    stacks, inputs = read_text(model, text, None, None)
    at = find_position(model, stacks, position)
    assert at is not None
    stream = read_stream(model, inputs)
    unembedding = model.module.get_output_embeddings()
    call = next((c for c in reversed(stream.calls) if c.module is unembedding), None)
    logits: Tensor = stream.outputs["logits"][0].double().cpu()
    if call is None or not isinstance(getattr(unembedding, "weight", None), Tensor):
        raise refusal(model, "it has no unembedding that is one linear module")
    if not _is_close(call.returned[0].double().cpu(), logits):
        raise refusal(model, "its logits are changed (scaled or capped) after the unembedding")
    norm, _ = find_norm(
        model, stream, stream.after, call.given, "between the last layer and the unembedding"
    )
    answer = find_answers(model, logits[at], target, foil, "logit", at)
    signs = {answer.target: 1.0} | ({} if answer.foil is None else {answer.foil: -1.0})
    weight, bias = unembedding.weight.detach(), getattr(unembedding, "bias", None)
    direction = torch.stack([sign * weight[token].double().cpu() for token, sign in signs.items()])
    direction = direction.sum(0)
    constant = 0.0
    if bias is not None:
        constant = sum(sign * float(bias[token].detach()) for token, sign in signs.items())
    parts = stream.values[:, at]
    if norm is None:
        written = parts @ direction
    else:
        written = norm.frozen(parts, stream.after[at]) @ direction
        constant += float(norm.bias @ direction)
    values = np.append(written.numpy(), constant)
    value = sum(sign * float(logits[at, token]) for token, sign in signs.items())
    difference = abs(float(values.sum()) - value)
    if difference > TOLERANCE * max(1.0, float(logits[at].abs().max())):
        raise refusal(model, f"its parts sum to {values.sum():.6g} and the logits give {value:.6g}")
    return xr.DataArray(
        values,
        dims="component",
        coords={
            "component": [*(part.name for part in stream.parts), "constant"],
            "kind": ("component", [*(part.kind for part in stream.parts), "constant"]),
            "layer": ("component", [*(part.layer for part in stream.parts), -1]),
            "head": ("component", [*(part.head for part in stream.parts), -1]),
        },
        name="attribution",
        attrs={
            "long_name": "what is written into the logits directly",
            "model": model.name,
            "text": text,
            **answer.describe(),
            "sum": float(values.sum()),
            "with": value,
            "difference": difference,
        },
    )


def _is_close(left: Tensor, right: Tensor) -> bool:
    size = max(float(right.abs().max()), 1e-6)
    return left.shape == right.shape and float((left - right).abs().max()) <= TOLERANCE * size
