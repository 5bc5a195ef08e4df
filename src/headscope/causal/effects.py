"""`headscope.effects`: what each head does to a prediction.

A first-order estimate of every head's effect, from one backward pass.

For zero it is −Σ a·∂m/∂a over the head's attention, which equals −Σ z·∂m/∂z over its output z;
for a mean z̄, Σ (z̄ − z)·∂m/∂z. Michel et al. 2019, equation 3; attribution patching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from transformers.utils.generic import ModelOutput

from headscope.arguments import expect
from headscope.attention import Attention, BlockName
from headscope.causal.ablation import (
    HeadsArgument,
    Replacement,
    head_sets,
    label_sets,
    make_replacement,
)
from headscope.causal.batched_forward import (
    BatchedAblation,
    ForwardPass,
    HeadSet,
    MakeReadout,
    UneditedRun,
)
from headscope.causal.loss_effects import LossEffects, effects_on_loss
from headscope.causal.readout import (
    CosineShift,
    CustomScalar,
    Pooling,
    Readout,
    find_answers,
    find_position,
    pooled,
    refuse_nonsense,
    refuse_one_token,
)
from headscope.errors import HeadscopeError, InputError, MissingObjective, UnknownName
from headscope.model.edits import WatchOutputs
from headscope.model.load import as_model, randomized
from headscope.model.model import Model
from headscope.model.objective import Scalar, frozen
from headscope.model.tap.dispatch import Attachment
from headscope.model.tap.sites import Site
from headscope.model.tracing import decoder_start, encode_for
from headscope.run.progress import Meter, phase
from headscope.statistics.intervals import mean_interval, mean_p
from headscope.text.corpus import Corpus
from headscope.text.readers.read import Readable, as_corpus
from headscope.text.tokens import Tokens


def estimate_effects(
    text: ForwardPass, make: MakeReadout, sets: Sequence[HeadSet], replacement: Replacement
) -> tuple[Readout, float, np.ndarray]:
    """What was read, its value, and for each set the sum of its heads' first-order effects."""
    block = replacement.block
    if replacement.means is None:
        readout, value, by_layer = _of_attention(text, make, block)
    else:
        readout, value, outputs, gradients = output_gradients(text, make, block)
        by_layer = {}
        for layer, output in outputs.items():
            change = replacement.means[layer][:, None].to(output) - output
            change[:, 0] = 0  # the first position is kept
            by_layer[layer] = (change * gradients[layer]).sum((-1, -2)).double().cpu().numpy()
    sums = np.array([sum(by_layer[layer][head] for layer, head in heads) for heads in sets])
    return readout, value, sums


def _of_attention(
    text: ForwardPass, make: MakeReadout, block: BlockName
) -> tuple[Readout, float, dict[int, np.ndarray]]:
    """By layer, `head`: −Σ a·∂m/∂a."""
    kept: dict[int, Tensor] = {}
    estimates: dict[int, np.ndarray] = {}

    def keep(attention: Attention) -> None:
        if attention.block == block:
            kept[attention.layer] = attention.weights.detach()

    def hear(site: Site, gradient: Tensor) -> None:
        if site.block == block:
            product = kept.pop(site.layer)[0].double() * gradient[0].double()
            estimates[site.layer] = -product.sum((-1, -2)).cpu().numpy()

    tap = Attachment(keep, on_gradient=hear, returns_weights=False)
    return *_backward(text, make, tap), estimates


def output_gradients(
    text: ForwardPass, make: MakeReadout, block: BlockName
) -> tuple[Readout, float, dict[int, Tensor], dict[int, Tensor]]:
    """What was read, its value, and by layer `head query neuron`: head outputs z and ∂m/∂z."""
    outputs: dict[int, Tensor] = {}
    gradients: dict[int, Tensor] = {}

    def keep(layer: int, value: Tensor) -> None:
        outputs[layer] = value[0]

    def hear(layer: int, gradient: Tensor) -> None:
        gradients[layer] = gradient[0]

    edits = tuple(
        WatchOutputs(layer=site.layer, head=0, block=block, on_value=keep, on_gradient=hear)
        for site in text.model.wiring.of_block(block)
    )
    tap = Attachment(edits=edits, returns_weights=False)
    return *_backward(text, make, tap), outputs, gradients


def _backward(text: ForwardPass, make: MakeReadout, tap: Attachment) -> tuple[Readout, float]:
    with torch.enable_grad(), text.model.attached(tap), frozen(text.model.module):
        outputs, logits = text.run()
        readout = make(outputs, None if logits is None else logits.detach())
        if isinstance(readout, CosineShift):
            raise InputError(
                "1 − cosine has a gradient of 0 where nothing is changed: method='gradient' needs "
                "a model with logits, or a function of the output as target."
            )
        value = readout.read(outputs, logits)[0]
        refuse_nonsense(text.model, readout, value.detach().double().cpu().numpy())
        value.backward()
    return readout, value.item()


Method = Literal["exact", "gradient"]
METHODS: tuple[Method, ...] = ("exact", "gradient")
POOLINGS: tuple[Pooling, ...] = ("mean", "first")
ONE_TEXT = "of this text alone: give several texts of one kind for a claim about the head"
Aim = str | int | Scalar | None
Foil = str | int | bool | None
Answers = Aim | Sequence[str | int]


def effects(
    model: Model | str,
    text: str | Sequence[str] | Corpus,
    target: Answers = None,
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
    pooling: Pooling = "mean",
    control: bool = False,
    max_tokens: int = 128,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.DataArray:
    """What each head does to a prediction: the number without the head − the number with it.

    Below 0, the head speaks for the target; above 0, against it. The number m is
    logit(target) − logit(foil), a log-probability, a class's logit or any scalar; for a plain
    encoder it is how far the text's vector turns, 1 − cosine. *Without* a head its output is
    zero, or its mean over a reference corpus. Every effect is computed by running the model
    with the head taken away; all heads go together as rows of a batch, on top of reused lower
    layers. What one text shows is about that text: for a claim about a head give several
    texts of one kind (paraphrases, templates), and look at the interval.

    Vig et al. 2020 (causal mediation), Michel et al. 2019, Voita et al. 2019; Wang et al. 2023
    for the mean over a reference.

    Args:
        model: the model, or what `headscope.load` takes.
        text: a text; several texts of one kind, for means with intervals over them; or a corpus
            (`headscope.read`), for each head's mean effect on the loss.
        target: a token or label, or a function of the model's output that returns one number a
            row; the likeliest answer by default. With several texts, also one for each.
        foil: what the target is compared with; the likeliest other answer by default, False for
            none.
        position: of the prediction: the last token by default, in masked models the last mask.
        measure: `logit` (the difference of target and foil) or `logprob` (of the target).
        ablation: `zero`, or `mean` over `reference`. The first position of the text keeps what it
            is: many heads rest there.
        reference: texts like those asked about.
        method: `exact`, or `gradient`: a first-order estimate of all heads in one backward pass.
            It ranks well (r .75 to .94), and misses single heads by factors.
        heads: pairs of layer and head; or sets of such pairs, each taken away together.
        block: which attention in an encoder-decoder; the encoder's by default.
        pair: a second text, as in sentence-pair tasks.
        decoder: what the decoder of an encoder-decoder has read so far; nothing by default.
        pooling: how a plain encoder's tokens make the text's vector: `mean` or `first`.
        control: also ask the same of the same architecture with random weights (its embeddings
            kept), and put the largest effect there into the attributes: what is no larger says
            nothing.
        max_tokens: longer documents of a corpus are cut.
        seed: decides which tokens an encoder has to guess (corpora), and the random weights.
        progress: show progress; by default on a terminal.

    Returns:
        `layer head` (NaN for heads not asked for), or `set`; with several texts or documents the
        mean, and in the coordinates `low` and `high` its 95 % interval and in `p` the p-value
        that it is 0. Attributes say what was measured, on what, and how.

    Raises:
        InputError: a target of several tokens, a position out of range, a text of one token
            where there is nothing to attend to.
        MissingObjective: a target for a model without logits.
    """
    model = as_model(model)
    with phase(f"checking {model.name}", progress):
        chosen_block = model.wiring.main_block() if block is None else block
    if method not in METHODS:
        raise UnknownName.of("method", method, METHODS)
    if pooling not in POOLINGS:
        raise UnknownName.of("pooling", pooling, POOLINGS)
    expect("text", text, str | Sequence | Corpus, "a text, several texts or a corpus")
    sets = head_sets(model, heads, chosen_block)
    means_over = None if reference is None else as_corpus(reference)
    replacement_in = partial(
        make_replacement, ablation=ablation, reference=means_over, block=chosen_block
    )
    how: dict[str, str | int | float] = {"ablation": ablation, "method": method}
    if means_over is not None:
        how["reference"] = means_over.name
    if model.module.dtype != torch.float32:
        how["dtype"] = str(model.module.dtype).removeprefix("torch.")
    if isinstance(text, Corpus):
        _refuse_for_corpora(
            target=target, foil=foil, pair=pair, decoder=decoder,
            position=None if position == -1 else position,
            measure=None if measure == "logit" else measure,
        )  # fmt: skip
        if method == "gradient":
            raise InputError(
                "The gradient estimate over a corpus is headscope.importance (removal_estimate)."
            )

        def on_loss(one: Model) -> LossEffects:
            return effects_on_loss(
                one, text, sets, replacement_in(one),
                max_tokens=max_tokens, seed=seed, progress=progress,
            )  # fmt: skip

        measured = on_loss(model)
        if control:
            how |= _control(model, seed, measured.mean, lambda other: on_loss(other).mean)
        about = measured.about | how
        return label_sets(model, chosen_block, sets, measured.mean, measured.intervals, about)
    texts = [text] if isinstance(text, str) else list(text)
    if not texts:
        raise InputError("There is no text: give one, several, or a corpus.")
    targets = _one_each(texts, target, "target")
    foils = _one_each(texts, foil, "foil")

    def on_texts(one: Model, questions: Iterable[tuple[object, object]]) -> list[_OneText]:
        study = _EffectRun(
            one, sets, replacement_in(one), method, measure, position, pair, decoder, pooling,
            chosen_block,
        )  # fmt: skip
        meter = Meter(len(texts) * len(sets), shown=progress)
        try:
            return [
                study.run(text, cast("Aim", aim), cast("Foil", other), meter.advance)
                for text, (aim, other) in zip(texts, questions, strict=True)
            ]
        finally:
            meter.close()

    several = on_texts(model, zip(targets, foils, strict=True))
    values = np.stack([one.values for one in several])
    about = {
        "model": model.name,
        **how,
        "block": chosen_block,
        "texts": len(texts),
        **_shared([one.about for one in several]),
    }
    if control:
        same = [one.readout.question for one in several]
        about |= _control(
            model, seed, values.mean(0),
            lambda other: np.mean([one.values for one in on_texts(other, same)], axis=0),
        )  # fmt: skip
    intervals = None
    if len(texts) > 1:
        bounds = mean_interval(values)
        intervals = np.stack([bounds.low, bounds.high, mean_p(values)])
    else:
        about["holds"] = ONE_TEXT
    return label_sets(model, chosen_block, sets, values.mean(0), intervals, about)


@dataclass(frozen=True, eq=False)
class _OneText:
    """The effects of all sets on one text."""

    values: np.ndarray
    readout: Readout
    value: float
    text: str

    @property
    def about(self) -> dict[str, str | int | float]:
        """The text, the number, and what it is with all heads."""
        return {"text": self.text, **self.readout.describe(), "with": self.value}


@dataclass(frozen=True, eq=False)
class _EffectRun:
    """What `effects` does with each text."""

    model: Model
    sets: Sequence[HeadSet]
    replacement: Replacement
    method: Method
    measure: str
    position: int
    pair: str | None
    decoder: str | None
    pooling: Pooling
    block: BlockName

    def run(
        self,
        text: str,
        target: Aim,
        foil: Foil,
        advance: Callable[[int], None],
    ) -> _OneText:
        """The effects on one text."""
        self._refuse_what_says_nothing(target, foil)
        stacks, inputs = read_text(self.model, text, self.pair, self.decoder)
        has_answers = not callable(target) and self.model.info.objective is not None
        at = find_position(self.model, stacks, self.position) if has_answers else None
        text_pass = ForwardPass(self.model, inputs, at)
        make = partial(self._readout, at, target, foil)
        if self.method == "gradient":
            readout, value, values = estimate_effects(text_pass, make, self.sets, self.replacement)
            advance(len(self.sets))
        else:
            rows = BatchedAblation(text_pass, self.block)
            base = rows.base(make)
            readout, value = base.readout, float(base.value)
            values = rows.values(base, self.sets, self.replacement.edit, advance) - value
            self._check(rows, base, values)
        return _OneText(values, readout, value, text)

    def _refuse_what_says_nothing(self, target: Aim, foil: Foil) -> None:
        """Refuse options that the number does not depend on."""
        objective = self.model.info.objective
        given = {
            "foil": None if foil is False else foil,
            "measure": None if self.measure == "logit" else self.measure,
            "position": None if self.position == -1 else self.position,
            "pooling": None if self.pooling == "mean" else self.pooling,
        }
        if callable(target):
            useless, why = list(given), "target is a function of the output, which is the number"
        elif objective is None:
            useless, why = ["measure", "position"], "the number is how far the text's vector turns"
        elif objective == "label":
            useless, why = ["position", "pooling"], "a label is of the whole text"
        else:
            useless, why = ["pooling"], f"{self.model.name} has logits"
        for name in useless:
            if given[name] is not None:
                raise InputError(f"{name}={given[name]!r} says nothing here: {why}.")

    def _readout(
        self,
        at: int | None,
        target: Aim,
        foil: Foil,
        outputs: ModelOutput,
        logits: Tensor | None,
    ) -> Readout:
        if callable(target):
            return CustomScalar(target)
        if self.model.info.objective is None:
            if target is not None or foil not in (None, False):
                self.model.require_objective(f"target={target!r}")
            if "last_hidden_state" not in outputs:
                raise MissingObjective(
                    f"{self.model.info.architecture} returns neither logits nor hidden states. "
                    "Give a function of its output: target=lambda output: …."
                )
            return CosineShift(pooled(outputs, self.pooling).clone(), self.pooling)
        assert logits is not None
        return find_answers(self.model, logits[0].float(), target, foil, self.measure, at)

    def _check(self, rows: BatchedAblation, base: UneditedRun, values: np.ndarray) -> None:
        """The largest effect once more, by a plain pass."""
        largest = int(np.argmax(np.abs(values)))
        again = rows.alone(base, self.sets[largest], self.replacement.edit) - float(base.value)
        if abs(again - values[largest]) > rows.tolerance * max(1.0, abs(again)):
            raise HeadscopeError(
                f"The largest effect is {values[largest]:.6g} in a batch and {again:.6g} by a "
                f"plain pass: rows of a batch of {self.model.info.family} are not independent."
            )


def read_text(
    model: Model, text: str, pair: str | None, decoder: str | None
) -> tuple[dict[str, Tokens], dict[str, Tensor]]:
    """Tokens by stack and inputs of a text; the decoder of an encoder-decoder reads its start
    token, and what it is given.

    Raises:
        InputError: a text of one token, or what a decoder reads for a model without one.
    """
    if "decoder" not in model.info.blocks:
        if decoder is not None:
            raise InputError(f"{model.name} has no decoder side, so decoder={decoder!r} is unused.")
        _, stacks, inputs = encode_for(model, text, pair, target=None, generate=0, truncate=False)
        refuse_one_token(stacks)
        return stacks, inputs
    written = text if decoder is None else decoder
    _, stacks, inputs = encode_for(model, text, pair, target=written, generate=0, truncate=False)
    if decoder is None:
        inputs["decoder_input_ids"] = torch.tensor([[decoder_start(model)]])
        stacks["decoder"] = Tokens.of(["<start>"], special=[True])
    return stacks, inputs


def _one_each(texts: Sequence[str], answers: object, name: str) -> list[object]:
    if isinstance(answers, Sequence) and not isinstance(answers, str):
        if len(answers) != len(texts):
            raise InputError(f"{len(texts)} texts, and {len(answers)} for {name}: give one each.")
        return list(answers)
    return [answers] * len(texts)


def _shared(abouts: Sequence[dict[str, str | int | float]]) -> dict[str, str | int | float]:
    """What is the same of all texts, and lists where it is not."""
    if len(abouts) == 1:
        return abouts[0]
    shared: dict[str, str | int | float] = {}
    for name in abouts[0]:
        values = [about.get(name, "") for about in abouts]
        if all(isinstance(value, float) for value in values):
            shared[name] = float(np.mean([float(value) for value in values]))
        else:
            distinct = list(dict.fromkeys(map(str, values)))
            shared[name] = values[0] if len(distinct) == 1 else " | ".join(distinct)
    return shared


def _control(
    model: Model, seed: int, real: np.ndarray, measure: Callable[[Model], np.ndarray]
) -> dict[str, str | int | float]:
    """The same question to the same architecture with random weights."""
    other = randomized(model, seed)
    largest = float(np.abs(measure(other)).max())
    return {
        "control": f"{other.name}, seed {seed}",
        "control_largest": largest,
        "control_heads_above": int((np.abs(real) > largest).sum()),
    }


def _refuse_for_corpora(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(
                f"{name}={value!r} is about one text. Over a corpus effects are on the loss; give "
                "a list of texts for a prediction of one kind."
            )
