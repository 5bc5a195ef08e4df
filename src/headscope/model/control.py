"""The random-weights control: a model whose weights are random, except its embeddings.

Clark et al. 2019, section 5: the same architecture with its pre-trained token and position
embeddings, everything else freshly initialized. If a probe finds syntax in its attention, or a
head has an effect on a prediction, this comes from the embeddings and the method, not from what
the model learned.
"""

from __future__ import annotations

import copy
import re

import torch

from headscope.model.model import Model
from headscope.model.quiet import quiet

_POSITION = re.compile(r"(^|\.)(wpe|\w*position(al)?_?embed\w*|embed_positions?|pos_embed\w*)\.")


def kept_parameters(model: Model) -> tuple[str, ...]:
    """Names of the parameters the control keeps: embeddings of tokens and of absolute
    positions. Rotary positions have no parameters; relative biases belong to the attention.
    """
    tokens = model.module.get_input_embeddings()
    token_parameters = {id(parameter) for parameter in tokens.parameters()}
    return tuple(
        name
        for name, parameter in model.module.named_parameters()
        if id(parameter) in token_parameters or (_POSITION.search(name) and "relative" not in name)
    )


def randomized(model: Model, seed: int = 0) -> Model:
    """A copy of the model with random weights, except its embeddings.

    The weights are initialized as transformers does for training from scratch. The state of
    torch's random numbers is left as it was.
    """
    module = model.module
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(seed)
        fresh = type(module)(copy.deepcopy(module.config))
    torch.nn.Module.to(fresh, device=module.device, dtype=module.dtype).eval()
    ours, theirs = dict(fresh.named_parameters()), dict(module.named_parameters())
    with torch.no_grad():
        for name in kept_parameters(model):
            ours[name].copy_(theirs[name])
    return Model(
        fresh,
        model.tokenizer,
        name=f"{model.name}, random weights",
        source=f"{model.info.source}; embeddings kept, the rest initialized with seed {seed}",
    )
