"""`neuron_view.show` with BertViz 1.4.1's arguments, for any model that headscope reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscope.bertviz.views import show_or_return
from headscope.errors import InputError
from headscope.page.selection import make_selection

if TYPE_CHECKING:
    from IPython.display import HTML
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def show(
    model: PreTrainedModel,
    model_type: str | None,
    tokenizer: PreTrainedTokenizerBase,
    sentence_a: str,
    sentence_b: str | None = None,
    display_mode: str = "auto",
    layer: int | None = None,
    head: int | None = None,
    html_action: str = "view",
) -> HTML | None:
    """Show queries and keys of a head, as BertViz's `neuron_view.show` does.

    Args:
        model: any transformers model (BertViz accepts four classes).
        model_type: ignored; part of BertViz's signature.
        tokenizer: the model's tokenizer.
        sentence_a: the text.
        sentence_b: second text of a pair.
        display_mode: `light`, `dark`, or `auto` to follow the notebook.
        layer: layer to open; the first by default.
        head: head to open; the first by default.
        html_action: `view` shows the page, `return` returns an `IPython.display.HTML`.
    """
    del model_type
    if not sentence_a:
        raise InputError("sentence_a is empty: give the text to look at.")
    from headscope.model.load import load

    trace = load(model, tokenizer=tokenizer).trace(sentence_a, pair=sentence_b)
    selection = make_selection(trace, view="neuron", layer=layer, heads=head, theme=display_mode)
    return show_or_return(trace, selection, html_action)
