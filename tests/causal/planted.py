"""A two-layer model with a known circuit: a previous-token head and an induction head."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import headscope as hs
from headscope.model.model import Model

WORDS = "a b c d e f g h i j k l".split()  # noqa: SIM905
N_POSITIONS, SIZE, GAIN = 16, 20, 3.0
TOKEN, POSITION = slice(0, 12), slice(12, 28)
WIDTH = 40


def planted_induction() -> Model:
    """Layer 0, head 1 copies the previous token; layer 1, head 0 looks for the token after an
    earlier equal one, by that copy. All other weights are 0.
    """
    config = GPT2Config(  # type: ignore[call-arg]
        vocab_size=len(WORDS), n_embd=WIDTH, n_layer=2, n_head=2, n_positions=N_POSITIONS,
        n_ctx=N_POSITIONS, bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    module = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "ln_" not in name:
                parameter.zero_()
        stack = module.transformer
        stack.wte.weight[:, TOKEN] = torch.eye(12)
        stack.wpe.weight[:, POSITION] = torch.eye(N_POSITIONS)
        first, second = (layer.attn for layer in stack.h)
        queries, keys, values = (
            first.c_attn.weight[:, i * WIDTH : (i + 1) * WIDTH] for i in range(3)
        )
        queries[POSITION, SIZE : SIZE + N_POSITIONS] = GAIN * torch.eye(N_POSITIONS)
        keys[POSITION, SIZE : SIZE + N_POSITIONS] = GAIN * torch.eye(N_POSITIONS).roll(1, 1)
        values[TOKEN, SIZE : SIZE + 12] = torch.eye(12)
        first.c_proj.weight[SIZE : SIZE + 12, 28:40] = torch.eye(12)
        queries, keys, _ = second.c_attn.weight.split(WIDTH, 1)
        queries[TOKEN, 0:12] = GAIN * torch.eye(12)
        keys[28:40, 0:12] = GAIN * torch.eye(12)
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="a", pad_token="a")
    return hs.load(module, fast, name="planted induction")
