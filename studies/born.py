"""A head is born: train a small model on text with repeats, and watch its heads.

    python -m studies.born                 # train, track, write docs/study/born.csv and the figure
    python -m studies.born --out folder    # also keep the tracked steps and a report

Documents are random words that repeat after a random distance, so only induction can predict the
second half: find the earlier occurrence of the word, and copy what came after. A head of the second
layer can do that if a head of the first layer writes the previous word to each position (Olsson et
al. 2022). The model has two layers with one head each, and rotary positions.

The first seed is tracked at 40 steps. Every seed is also measured without headscope, from the
attention that transformers returns for random words repeated once. A score has risen at the first
step from which on it stays above half of its last value.
"""

from __future__ import annotations

import argparse
import csv
import math
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import headscope as hs
from headscope.figures.style import save_figure

DOCS = Path(__file__).parents[1] / "docs" / "study"
FILE, PICTURE = DOCS / "born.csv", DOCS / "born.png"
N_WORDS, LENGTH, BATCH, RATE, STEPS = 120, 64, 32, 1e-3, 500
SEEDS = range(5)
TRACKED = [0, 60, 120, 160, 180, 200, *range(210, 272, 2), 300, 400, 500]
"""Steps of the first seed, dense where the loss falls."""
EVERY = 2
"""Steps between two measurements without headscope."""
CONSONANTS, VOWELS = "bdfgklmnprst", "aeiou"
WORDS = [a + b + c for a in CONSONANTS for b in VOWELS for c in ("n", "s")][:N_WORDS]
Row = dict[str, float]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token for each word."""
    vocabulary = {word: number for number, word in enumerate(["<pad>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", model_max_length=LENGTH
    )


def make_model(seed: int) -> LlamaForCausalLM:
    """Return a model of two layers with one head each."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=N_WORDS + 2,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=LENGTH,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    config._attn_implementation = "eager"
    return LlamaForCausalLM(config)


def draw(generator: np.random.Generator, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return documents, and which of their words repeat an earlier part."""
    ids = np.zeros((n, LENGTH), dtype=np.int64)
    is_repeat = np.zeros((n, LENGTH), dtype=bool)
    for row in range(n):
        period = int(generator.integers(8, LENGTH // 2))
        once = 2 + generator.choice(N_WORDS, period, replace=False)
        ids[row] = np.resize(once, LENGTH)
        is_repeat[row, period + 1 :] = True  # the first repeated word cannot be foreseen
    return torch.from_numpy(ids), torch.from_numpy(is_repeat)


@torch.no_grad()
def measure(model: LlamaForCausalLM, ids: torch.Tensor, is_repeat: torch.Tensor) -> Row:
    """Return losses of held-out documents, and scores of both heads by their definition."""
    model.eval()
    logits = model(input_ids=ids).logits[:, :-1]
    each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    repeats, half = is_repeat[:, 1:], LENGTH // 2
    generator = np.random.default_rng(99)
    once = [2 + generator.choice(N_WORDS, half, replace=False) for _ in range(8)]
    twice = torch.from_numpy(np.stack([np.concatenate((words, words)) for words in once]))
    first, second = model(input_ids=twice, output_attentions=True).attentions
    model.train()
    queries = range(half, LENGTH)
    return {
        "loss_of_repeats": float(each[repeats].mean()),
        "loss_of_new": float(each[~repeats].mean()),
        "previous_L0": float(torch.stack([first[:, 0, i, i - 1] for i in queries]).mean()),
        "induction_L1": float(torch.stack([second[:, 0, i, i - half + 1] for i in queries]).mean()),
    }


def train(seed: int, tracker: hs.HeadTracker | None) -> list[Row]:
    """Train and measure one seed; the tracker measures its own steps."""
    model, generator = make_model(seed), np.random.default_rng(seed)
    held_out = draw(np.random.default_rng(1234), 24)
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.01)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 50))
    model.train()
    rows: list[Row] = []
    for step in range(STEPS + 1):
        if step % EVERY == 0:
            rows.append({"seed": seed, "step": step, **measure(model, *held_out)})
        if tracker is not None and step in TRACKED:
            tracker.log(model, step)
        ids, _ = draw(generator, BATCH)
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        warm.step()
        optimizer.zero_grad()
    return rows


def risen(rows: list[Row], name: str) -> int:
    """Return the first step from which on a score stays above half of its last value."""
    least = rows[-1][name] / 2
    below = [row["step"] for row in rows if row[name] < least]
    return int(max(below, default=-EVERY)) + EVERY


def fallen(rows: list[Row]) -> int:
    """Return the first step from which on the loss of repeats stays below half of chance."""
    above = [r["step"] for r in rows if r["loss_of_repeats"] > math.log(N_WORDS) / 2]
    return int(max(above, default=-EVERY)) + EVERY


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    start, tokenizer = time.process_time(), make_tokenizer()
    rows: list[Row] = []
    print("seed  previous-token head  induction head  loss of repeats")
    with tempfile.TemporaryDirectory() as temporary:
        out = arguments.out or Path(temporary)
        texts = [tokenizer.decode(ids) for ids in draw(np.random.default_rng(1234), 24)[0]]
        tracker = hs.HeadTracker(texts, tokenizer=tokenizer, out=out, budget=None)
        for seed in SEEDS:
            made = train(seed, tracker if seed == SEEDS[0] else None)
            steps = risen(made, "previous_L0"), risen(made, "induction_L1"), fallen(made)
            print(f"{seed:<4}  {steps[0]:>19}  {steps[1]:>14}  {steps[2]:>15}", flush=True)
            rows += made
        results = tracker.close()
        detected, last = results["detect"], results["detect"].at_step(STEPS)
        for name, layer in (("previous_token", 0), ("induction", 1)):
            half = float(last[name].sel(layer=layer, head=0)) / 2
            print(detected.onsets(name, half))
        picture = detected.figure("through-training", names=["previous_token", "induction"], n=2)
        save_figure(picture, PICTURE)
        if arguments.out:
            hs.report(list(results.values()), out / "report.html", title="A head is born")
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: round(value, 5) for key, value in row.items()} for row in rows)
    print(f"{time.process_time() - start:.0f} CPU seconds; chance is {math.log(N_WORDS):.2f} nats")


if __name__ == "__main__":
    main()
