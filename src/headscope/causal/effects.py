"""`headscope.effects`: ablate heads; measure a prediction or a loss. `headscope.prune_heads`.

The gradient estimate for zero ablation is −Σ a·∂m/∂a over the head's attention, which equals
−Σ z·∂m/∂z over its output z; for a mean z̄ it is Σ (z̄ − z)·∂m/∂z. Michel et al. 2019, equation 3;
attribution patching.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from transformers.utils.generic import ModelOutput

from headscope.arguments import expect, whole_number
from headscope.attention import Attention, BlockName
from headscope.causal import readout as readouts
from headscope.causal.ablation import (
    HeadsArgument,
    Replacement,
    head_sets,
    label_sets,
    make_replacement,
    rank,
)
from headscope.causal.batched_forward import BatchedAblation, ForwardPass, HeadSet, MakeReadout
from headscope.errors import HeadscopeError, InputError, MissingObjective, UnknownName
from headscope.model.edits import WatchOutputs
from headscope.model.identity import describe_model, versions
from headscope.model.load import as_model, randomized
from headscope.model.model import Model
from headscope.model.objective import NOTHING, Scalar, frozen, require_gradients
from headscope.model.tap.dispatch import Attachment
from headscope.model.tap.sites import Site
from headscope.model.tracing import decoder_start, encode_for
from headscope.results.effect_data import COSINE_DISTANCE, EffectArray
from headscope.run.progress import Meter, phase
from headscope.run.shard import encode_predictable, question
from headscope.statistics.differences import Difference, in_most, over_texts
from headscope.statistics.intervals import MIN_BUCKETS
from headscope.statistics.jackknife import pool
from headscope.text.corpus import Corpus
from headscope.text.pairs import describe_templates, find_templates, number_templates
from headscope.text.readers.read import Readable, as_corpus
from headscope.text.tokens import Tokens


def estimate_effects(
    text: ForwardPass, make: MakeReadout, sets: Sequence[HeadSet], replacement: Replacement
) -> tuple[readouts.Readout, float, np.ndarray]:
    """Return the readout, its value, and for each set the sum of first-order effects. Weights are
    read only where the tap does not see the head outputs.
    """
    by_layer: dict[int, np.ndarray] = {}
    sites = text.model.wiring.of_block(replacement.block)
    modules = {site.module for site in text.model.wiring.copies}
    if all(site.value_size and site.module not in modules for site in sites):
        readout, value, outputs, gradients = output_gradients(
            text, make, replacement.block, is_fused=True
        )
        for layer, output in outputs.items():
            change = -output
            if replacement.outputs is not None:
                change += replacement.outputs[layer].to(output)
            if replacement.keeps_first:
                change[:, 0] = 0
            products = change.double() * gradients.pop(layer).double()
            by_layer[layer] = products.sum((-1, -2)).cpu().numpy()
    else:
        kept: dict[int, Tensor] = {}

        def keep(attention: Attention) -> None:
            if attention.block == replacement.block:
                kept[attention.layer] = attention.weights.detach()

        def multiply(site: Site, gradient: Tensor) -> None:
            if site.block == replacement.block:
                product = kept.pop(site.layer)[0].double() * gradient[0].double()
                by_layer[site.layer] = -product.sum((-1, -2)).cpu().numpy()

        attachment = Attachment(keep, on_gradient=multiply, returns_weights=False)
        readout, value = _backward(text, make, attachment)
    sums = np.array([sum(by_layer[layer][head] for layer, head in heads) for heads in sets])
    return readout, value, sums


def output_gradients(
    text: ForwardPass, make: MakeReadout, block: BlockName, *, is_fused: bool = False
) -> tuple[readouts.Readout, float, dict[int, Tensor], dict[int, Tensor]]:
    """Return the readout, its value, and by layer `head query neuron`: outputs z and ∂m/∂z. With
    `is_fused`, plain attention is torch's: memory linear in the text, and other roundings.
    """
    outputs: dict[int, Tensor] = {}
    gradients: dict[int, Tensor] = {}

    def keep(layer: int, value: Tensor) -> None:
        outputs[layer] = value[0]

    def keep_gradient(layer: int, gradient: Tensor) -> None:
        gradients[layer] = gradient[0]

    edits = tuple(
        WatchOutputs(
            layer=site.layer, head=0, block=block, on_value=keep, on_gradient=keep_gradient
        )
        for site in text.model.wiring.of_block(block)
    )
    only = frozenset[int]() if is_fused and text.model.wiring.has_rows else None
    attachment = Attachment(edits=edits, returns_weights=False, layers=only)
    return *_backward(text, make, attachment), outputs, gradients


def _backward(
    text: ForwardPass, make: MakeReadout, attachment: Attachment
) -> tuple[readouts.Readout, float]:
    require_gradients(text.model)
    with torch.enable_grad(), text.model.attached(attachment), frozen(text.model.module):
        outputs, logits = text.run()
        readout = make(outputs, None if logits is None else logits.detach())
        if isinstance(readout, readouts.CosineShift):
            raise InputError(
                "1 − cosine has a gradient of 0 where nothing is changed: method='gradient' needs "
                "a model with logits, or a function of the output as target."
            )
        value = readout.read(outputs, logits)[0]
        readouts.check_finite(text.model, readout, value.detach().double().cpu().numpy())
        value.backward()
    return readout, value.item()


Method = Literal["exact", "gradient"]
METHODS: tuple[Method, ...] = ("exact", "gradient")
POOLINGS: tuple[readouts.Pooling, ...] = ("mean", "first")
DEFAULTS = {"measure": "logit", "position": -1, "pooling": "mean"}
ONE_TEXT = "of this text alone: give several texts of one kind for a claim about the head"
AnswerArgument = str | int | Scalar | None
FoilArgument = str | int | bool | None


def effects(
    model: Model | str,
    text: str | Sequence[str] | Corpus,
    target: AnswerArgument | Sequence[str | int] = None,
    foil: str | int | bool | Sequence[str | int] | None = None,
    *,
    position: int = -1,
    measure: Literal["logit", "logprob"] = "logit",
    ablation: Literal["zero", "mean"] = "zero",
    reference: Corpus | Readable | None = None,
    method: Method = "exact",
    heads: HeadsArgument = None,
    block: BlockName | None = None,
    pair: str | None = None,
    decoder: str | None = None,
    pooling: readouts.Pooling = "mean",
    control: bool = False,
    templates: Sequence[object] | None = None,
    max_tokens: int = 128,
    seed: int = 0,
    progress: bool | None = None,
) -> EffectArray:
    """Ablate each head and return the change: the number without the head − with it.

    Below 0, the head increases the logit difference; above 0, it decreases it. The number m is
    logit(target) − logit(foil), a log-probability, a class's logit or any scalar; for a plain
    encoder it is the cosine distance of the text's vector. Ablation sets the head's output to
    zero, or to its mean over a reference corpus. All heads are rows of a batch, on top of reused
    lower layers. An effect in one text describes only that text. Texts of one template, with other
    names filled in, describe these names in this sentence. For a claim about a construction, give
    several sentences of it: from five templates on, the interval is over templates.

    Vig et al. 2020 (causal mediation), Michel et al. 2019, Voita et al. 2019; Wang et al. 2023
    for the mean over a reference.

    Args:
        model: the model, or an argument of `headscope.load`.
        text: a text; several texts of one kind, for means with intervals over them; or a corpus
            (`headscope.read`), for each head's mean effect on the loss.
        target: token, label, or function of the model's output that returns one number per row;
            by default the top prediction. With several texts, also one for each.
        foil: answer to subtract; by default the next prediction, False for none.
        position: position of the prediction: by default the last token, or the last mask.
        measure: `logit` (the difference of target and foil) or `logprob` (of the target).
        ablation: `zero`, or `mean` over `reference`. In causal models a mean keeps the first
            position, an attention sink, unless the answer is read there (attribute `kept`).
        reference: texts similar to `text`.
        method: `exact`, or `gradient`: a first-order estimate of all heads in one backward pass.
            It ranks well (r .75 to .94), and misses single heads by factors.
        heads: pairs of layer and head; or sets of such pairs, each ablated together.
        block: attention block of an encoder-decoder; the encoder's by default.
        pair: second text, as in sentence-pair tasks.
        decoder: text that the decoder has read so far; nothing by default.
        pooling: pooling of a plain encoder's tokens: `mean` or `first`.
        control: also measure the same architecture with random weights (its embeddings kept).
            Attributes then have its largest effect, a lower bound for meaningful effects.
        templates: label of each text's template. By default near-copies are recognized
            (`headscope.text.pairs`). Attributes `templates` and `holds` say how many there
            are and what the interval speaks of.
        max_tokens: longer documents of a corpus are cut.
        seed: seed of the tokens that an encoder has to predict (corpora), and of random weights.
        progress: show progress; by default on a terminal.

    Returns:
        `layer head` (NaN for heads not requested), or `set`. With several texts or documents the
        mean, with its 95 % interval in the coordinates `low` and `high` and the p value of H0: 0
        in `p`. Attributes describe the measurement.

    Raises:
        InputError: the target has several tokens, the position is out of range, or the text has
            one token.
        MissingObjective: a target for a model without logits.
    """
    with phase(f"checking {getattr(model, 'name', model)}", progress):
        model = as_model(model)
        chosen_block = model.wiring.main_block() if block is None else block
    UnknownName.check("method", method, METHODS)
    UnknownName.check("pooling", pooling, POOLINGS)
    expect("text", text, str | Sequence | Corpus, "a text, several texts or a corpus")
    sets = head_sets(model, heads, chosen_block)
    means_over = None if reference is None else as_corpus(reference)
    make_model_replacement = partial(
        make_replacement,
        ablation=ablation,
        reference=means_over,
        block=chosen_block,
        reads_first=pooling == "first",
    )
    options: dict[str, str | int | float] = {"ablation": ablation, "method": method}
    if means_over is not None:
        options["reference"] = means_over.name
        keeps_first = chosen_block in model.wiring.causal_blocks and pooling != "first"
        options["kept"] = "first position" if keeps_first else "nothing"
    if model.module.dtype != torch.float32:
        options["dtype"] = str(model.module.dtype).removeprefix("torch.")
    if isinstance(text, Corpus):
        given = {"target": target, "foil": foil, "templates": templates, "pair": pair}
        given |= {"decoder": decoder, "position": position, "measure": measure}
        for name, value in given.items():
            if value is not None and value != DEFAULTS.get(name):
                raise InputError(
                    f"{name}={value!r} needs a text. Effects over a corpus are on the loss; give "
                    "a list of texts for a prediction of one kind."
                )
        if method == "gradient":
            raise InputError(
                "The gradient estimate over a corpus is headscope.importance (removal_estimate)."
            )

        def measure_loss(
            measured_model: Model,
        ) -> tuple[Difference, dict[str, str | int | float]]:
            return effects_on_loss(
                measured_model, text, sets, make_model_replacement(measured_model),
                max_tokens=max_tokens, seed=seed, progress=progress,
            )  # fmt: skip

        rise, about = measure_loss(model)
        if control:
            options |= _control(model, seed, rise.value, lambda other: measure_loss(other)[0].value)
        return label_sets(model, chosen_block, sets, rise.value, rise, about | options)
    texts = [text] if isinstance(text, str) else list(text)
    if not texts:
        raise InputError("There is no text: give one, several, or a corpus.")
    targets = one_each("texts", len(texts), target, "target")
    foils = one_each("texts", len(texts), foil, "foil")

    def measure_texts(
        measured_model: Model, answers: Iterable[tuple[object, object]]
    ) -> list[tuple[np.ndarray, dict[str, str | int | float], tuple[object, object]]]:
        run = _EffectRun(
            measured_model, sets, make_model_replacement(measured_model), method, measure,
            position, pair, decoder, pooling, chosen_block,
        )  # fmt: skip
        with closing(Meter(len(texts) * len(sets), shown=progress)) as meter:
            return [
                run.run(
                    text, cast("AnswerArgument", answer), cast("FoilArgument", other), meter.advance
                )
                for text, (answer, other) in zip(texts, answers, strict=True)
            ]

    results = measure_texts(model, zip(targets, foils, strict=True))
    by_text, descriptions, questions = zip(*results, strict=True)
    values = np.stack(by_text)
    attributes = {
        "model": model.name,
        **options,
        "block": chosen_block,
        "texts": len(texts),
        **_shared(descriptions),
    }
    if control:
        attributes |= _control(
            model, seed, values.mean(0),
            lambda other: np.mean([each[0] for each in measure_texts(other, questions)], axis=0),
        )  # fmt: skip
    found = None
    if len(texts) > 1:
        numbers = number_templates(texts, templates)
        attributes |= {"templates": int(numbers.max()) + 1, "holds": describe_templates(numbers)}
        is_distance = attributes.get("measure") == COSINE_DISTANCE
        found = over_texts(values, np.ones_like(values), numbers, is_distance=is_distance)
    else:
        attributes["holds"] = ONE_TEXT
    return label_sets(model, chosen_block, sets, values.mean(0), found, attributes)


@dataclass(frozen=True, eq=False)
class _EffectRun:
    model: Model
    sets: Sequence[HeadSet]
    replacement: Replacement
    method: Method
    measure: str
    position: int
    pair: str | None
    decoder: str | None
    pooling: readouts.Pooling
    block: BlockName

    def run(
        self, text: str, target: AnswerArgument, foil: FoilArgument, advance: Callable[[int], None]
    ) -> tuple[np.ndarray, dict[str, str | int | float], tuple[object, object]]:
        """Return the effects of all sets on one text, their attributes, and target and foil."""
        self._reject_unused(target, foil)
        stacks, inputs = read_text(self.model, text, self.pair, self.decoder)
        has_answers = not callable(target) and self.model.info.objective is not None
        index = readouts.find_position(self.model, stacks, self.position) if has_answers else None
        text_pass = ForwardPass(self.model, inputs, index)
        replacement, kept = self.replacement, dict[str, str]()
        if replacement.outputs is not None:
            keeps_first = replacement.keeps_first and index != 0  # else nothing would change
            replacement = replace(replacement, keeps_first=keeps_first)
            kept = {"kept": "first position" if keeps_first else "nothing"}

        def make(outputs: ModelOutput, logits: Tensor | None) -> readouts.Readout:
            if callable(target):
                return readouts.CustomScalar(target)
            if self.model.info.objective is None:
                if target is not None or foil not in (None, False):
                    self.model.require_objective(f"target={target!r}")
                if "last_hidden_state" not in outputs:
                    raise MissingObjective(
                        f"{self.model.info.architecture} returns neither logits nor hidden states. "
                        "Give a function of its output: target=lambda output: …."
                    )
                return readouts.CosineShift(
                    readouts.pooled(outputs, self.pooling).clone(), self.pooling
                )
            assert logits is not None
            return readouts.find_answers(
                self.model, logits[0].float(), target, foil, self.measure, index
            )

        if self.method == "gradient":
            readout, value, values = estimate_effects(text_pass, make, self.sets, replacement)
            advance(len(self.sets))
        else:
            ablation = BatchedAblation(text_pass, self.block)
            base = ablation.base(make)
            readout, value = base.readout, float(base.value)
            values = ablation.values(base, self.sets, replacement.edit, advance) - value
            largest = int(np.argmax(np.abs(values)))  # checked by a plain pass
            again = ablation.alone(base, self.sets[largest], replacement.edit) - value
            if abs(again - values[largest]) > ablation.tolerance * max(1.0, abs(again)):
                raise HeadscopeError(
                    f"The largest effect is {values[largest]:.6g} in a batch and {again:.6g} by a "
                    f"plain pass: rows of a batch of {self.model.info.family} are not independent."
                )
        about = {"text": text, **kept, **readout.describe(), "with": value}
        return values, about, readout.question

    def _reject_unused(self, target: AnswerArgument, foil: FoilArgument) -> None:
        objective = self.model.info.objective
        options = {"foil": None if foil is False else foil} | {
            name: getattr(self, name) for name in DEFAULTS
        }
        if callable(target):
            unused, reason = list(options), "target is a function of the output"
        elif objective is None:
            unused, reason = ["measure", "position"], "the number is a cosine distance"
        elif objective == "label":
            unused, reason = ["position", "pooling"], "a label is of the whole text"
        else:
            unused, reason = ["pooling"], f"{self.model.name} has logits"
        for name in unused:
            if options[name] != DEFAULTS.get(name):
                raise InputError(f"{name}={options[name]!r} is not used: {reason}. Omit it.")


def read_text(
    model: Model, text: str, pair: str | None, decoder: str | None
) -> tuple[dict[str, Tokens], dict[str, Tensor]]:
    """Return tokens by stack and inputs of a text; a decoder starts with its start token."""
    if "decoder" not in model.info.blocks:
        if decoder is not None:
            raise InputError(f"{model.name} has no decoder side, so decoder={decoder!r} is unused.")
        _, stacks, inputs = encode_for(model, text, pair, target=None, generate=0, truncate=False)
        readouts.require_two_tokens(stacks)
        return stacks, inputs
    target = text if decoder is None else decoder
    _, stacks, inputs = encode_for(model, text, pair, target=target, generate=0, truncate=False)
    if decoder is None:
        inputs["decoder_input_ids"] = torch.tensor([[decoder_start(model)]])
        stacks["decoder"] = Tokens.of(["<start>"], special=[True])
    return stacks, inputs


def one_each(noun: str, n: int, answers: Any, name: str) -> list[Any]:
    """Return n answers: one for each text or pair, or the same answer for all."""
    if isinstance(answers, Sequence) and not isinstance(answers, str):
        if len(answers) != n:
            raise InputError(f"{n} {noun}, and {len(answers)} for {name}: give one each.")
        return list(answers)
    return [answers] * n


def _shared(descriptions: Sequence[dict[str, str | int | float]]) -> dict[str, str | int | float]:
    """Join the attributes of texts: floats as means, unequal values with `|`."""
    if len(descriptions) == 1:
        return descriptions[0]
    shared: dict[str, str | int | float] = {}
    for name in descriptions[0]:
        values = [description.get(name, "") for description in descriptions]
        if all(isinstance(value, float) for value in values):
            shared[name] = float(np.mean([float(value) for value in values]))
        else:
            distinct = list(dict.fromkeys(map(str, values)))
            shared[name] = values[0] if len(distinct) == 1 else " | ".join(distinct)
    return shared


def _control(
    model: Model, seed: int, real: np.ndarray, measure: Callable[[Model], np.ndarray]
) -> dict[str, str | int | float]:
    other = randomized(model, seed)
    largest = float(np.abs(measure(other)).max())
    return {
        "control": f"{other.name}, seed {seed}",
        "control_largest": largest,
        "control_heads_above": int((np.abs(real) > largest).sum()),
    }


def effects_on_loss(
    model: Model,
    corpus: Corpus,
    sets: Sequence[HeadSet],
    replacement: Replacement,
    *,
    max_tokens: int,
    seed: int,
    progress: bool | None,
) -> tuple[Difference, dict[str, str | int | float]]:
    """Return the rise of the loss per token without each set, a ratio of sums over the texts, and
    the attributes of results. Near-copies (`headscope.text.pairs`) are one cluster of the interval.
    """
    model.require_objective("An effect on the loss")
    encoder, documents, independence = encode_predictable(model, corpus, max_tokens)
    by_text: dict[str, np.ndarray] = {}  # sums of the loss, of predicted tokens, of each rise
    texts: dict[str, str] = {}
    with closing(Meter(len(documents) * len(sets), shown=progress)) as meter:
        for encoded in documents:
            inputs, labels = question(model, *encoder.batch([encoded]), seed)
            labels = torch.as_tensor(labels)
            ablation = BatchedAblation(ForwardPass(model, inputs, None), replacement.block)
            base = ablation.base(lambda *_, labels=labels: readouts.LossSum(labels))
            loss = float(base.value)
            rises = ablation.values(base, sets, replacement.edit, meter.advance) - loss
            document = encoded.numbered[1]
            name = document.part_of or document.id
            texts[name] = f"{texts.get(name, '')} {document.text}"
            sums = by_text.setdefault(name, np.zeros(2 + len(sets)))
            sums += [loss, int((labels != NOTHING).sum()), *rises]
    losses, tokens, rises = np.split(np.stack(list(by_text.values())), [1, 2], axis=1)
    templates = find_templates(list(texts.values()))
    n_templates = int(templates.max()) + 1
    units = pool(rises, templates) if n_templates >= MIN_BUCKETS else rises
    rise = in_most(over_texts(rises, np.broadcast_to(tokens, rises.shape), templates), units)
    counts = {"documents": len(tokens), "tokens": int(tokens.sum()), "templates": n_templates}
    provenance = {
        "model": describe_model(model),
        "corpus": {"name": corpus.name},
        "counts": counts,
        "settings": {"max_tokens": max_tokens, "seed": seed},
        "versions": versions(),
    }
    attributes: dict[str, str | int | float] = {
        "model": model.name,
        "corpus": corpus.name,
        "block": replacement.block,
        "measure": "loss",
        "number": "loss per predicted token",
        "units": "nats per token",
        "with": float(losses.sum() / tokens.sum()),
        "texts": len(tokens),
        "tokens": counts["tokens"],
        "templates": n_templates,
        "provenance": json.dumps(provenance),
    }
    holds = [describe_templates(templates) if n_templates < len(tokens) else "", independence]
    if any(holds):
        attributes["holds"] = "; ".join(filter(None, holds))
    return rise, attributes


def prune_heads(
    model: Model | str,
    corpus: Corpus | Readable,
    order: xr.DataArray | Sequence[tuple[int, int]],
    *,
    steps: int = 10,
    ablation: str = "zero",
    reference: Corpus | Readable | None = None,
    max_tokens: int = 128,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Measure the loss as heads are removed one after another: a pruning curve.

    Heads can replace one another, so effects of single heads do not add up. This function removes
    heads together. Michel et al. 2019, section 4; Voita et al. 2019.

    Args:
        model: model with a loss, or an argument of `headscope.load`.
        corpus: documents; use others than those that gave the order, to avoid selection bias.
        order: effects of heads, removed from the smallest absolute value on; or pairs of layer
            and head in the order of their removal.
        steps: number of measured points.
        ablation: `zero`, or `mean` over `reference`.
        reference: texts to take means over.
        max_tokens: longer documents are cut.
        seed: seed of the tokens that an encoder has to predict.
        progress: show progress; by default on a terminal.

    Returns:
        `loss` over `removed`, `rise` over the whole model with `rise_low` and `rise_high`, and
        the `head` removed last.
    """
    model = as_model(model)
    corpus = as_corpus(corpus)
    block = model.wiring.main_block()
    removed = _order(model, order)
    numbers = np.unique(np.linspace(0, len(removed), whole_number("steps", steps) + 1).round())
    counts = [int(n) for n in numbers if n > 0]
    sets = [tuple(sorted(removed[:n])) for n in counts]
    replacement = make_replacement(model, ablation, reference, block)
    found, attributes = effects_on_loss(
        model, corpus, sets, replacement, max_tokens=max_tokens, seed=seed, progress=progress
    )
    whole = float(attributes["with"])
    last = [f"L{layer} H{head}" for layer, head in (removed[n - 1] for n in counts)]
    rise, low, high = (np.append(0.0, part) for part in (found.value, found.low, found.high))
    return xr.Dataset(
        {
            "loss": ("removed", whole + rise, {"units": "nats per token"}),
            "rise": ("removed", rise, {"units": "nats per token"}),
            "rise_low": ("removed", low),
            "rise_high": ("removed", high),
        },
        coords={"removed": [0, *counts], "head": ("removed", ["", *last])},
        attrs={**attributes, "ablation": ablation, "heads": len(removed)},
    )


def _order(model: Model, order: xr.DataArray | Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    if isinstance(order, xr.DataArray):
        if order.dims != ("layer", "head"):
            raise InputError(f"order has axes {order.dims}; expected effects over layer and head.")
        order = [(layer, head) for layer, head, _ in reversed(rank(order))]
    removed = list(order)
    sets = head_sets(model, removed, model.wiring.main_block())
    if len(sets) < len(removed) or any(len(heads) > 1 for heads in sets):
        raise InputError("order should name each head to remove once, in pairs of layer and head.")
    return [head for (head,) in sets]
