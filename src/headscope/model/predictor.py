"""What a model predicts, and what its loss depends on: methods of `Model`."""

# mypy: disable-error-code="misc"
# `self` is of the one class that inherits the methods, which mypy cannot know.

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headscope.attention import Block
from headscope.errors import MissingObjective, TapUnsupported
from headscope.model.info import Objective
from headscope.model.transfer import weights_version

if TYPE_CHECKING:
    from headscope.model.aims import Target
    from headscope.model.model import Model
    from headscope.model.tap.projection import Projection
    from headscope.results.predictions import Predictions
    from headscope.results.text_gradients import Gradients


class Predictor:
    """Predictions, gradients, the objective, and output projections."""

    @property
    def projections(self: Model) -> Mapping[tuple[Block, int], Projection]:
        """The output projection of each block and layer, head by head, found by value.

        Raises:
            TapUnsupported: none is proved to be it, with what was seen.
        """
        from headscope.model.tap.projection import find_projections

        version = weights_version(self.module)
        known = self._projections
        if known is None or known[0] != version:
            try:
                known = version, find_projections(self, self._example)
            except TapUnsupported as refusal:
                known = version, refusal
            self._projections = known
        if isinstance(known[1], TapUnsupported):
            raise known[1]
        return known[1]

    def predict(
        self: Model,
        text: str,
        pair: str | None = None,
        *,
        target: str | None = None,
        generate: int = 0,
    ) -> Predictions:
        """What the model predicts for a text, without its attention: prints as a table.

        Args:
            text: the text.
            pair: a second text, as in sentence-pair tasks.
            target: what the decoder reads, for encoder-decoders.
            generate: let the model continue by up to so many tokens first.

        Raises:
            MissingObjective: the model is a plain encoder, which predicts nothing.
        """
        from headscope.model.tracing import predict_text

        return predict_text(self, text, pair, target, generate)

    def gradients(
        self: Model,
        text: str,
        pair: str | None = None,
        *,
        target: Target | None = None,
        seed: int = 0,
        truncate: bool = True,
    ) -> Gradients:
        """∂L/∂a for every layer and head, with the model's own objective or any scalar.

        Causal models predict each next token; encoders with a masked-language head predict
        15 % of the tokens, replaced by the mask token (which ones, `seed` decides);
        encoder-decoders predict `target`; classifiers the label they find likeliest.

        Args:
            text: the text.
            pair: a second text, as in sentence-pair tasks.
            target: what L is about instead: a label of a classifier, the token after the text
                (causal models) or at its masks (masked ones), both as −log p; or a function of
                the model's output, which is L itself. In encoder-decoders what the decoder reads.
            seed: decides which tokens are masked.
            truncate: cut a text that is too long, with a warning; else it is an error.

        Raises:
            MissingObjective: the weights have no head that predicts, so there is no loss.
        """
        from headscope.model.objective import gradients_of_text

        return gradients_of_text(self, text, pair, target=target, seed=seed, truncate=truncate)

    def need_objective(self: Model, purpose: str) -> Objective:
        """The model's objective, or an error that says why there is none."""
        if self.info.objective is None:
            why = (
                f"its class {self.info.architecture} predicts nothing headscope has a loss for"
                if self._has_lm_head
                else "its weights have no language-model head and no classifier"
            )
            raise MissingObjective(
                f"{purpose} needs a model that predicts tokens or labels, but {self.name} does "
                f"not: {why}. Load a checkpoint with its head (a …ForCausalLM, …ForMaskedLM, "
                "…ForConditionalGeneration or …ForSequenceClassification)."
            )
        return self.info.objective
