"""BertViz 1.4.1's `head_view` and `model_view`, shown in a notebook or returned as HTML."""

from __future__ import annotations

import html
import importlib
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headscope.attention import key_stack, query_stack
from headscope.errors import InputError, MissingExtra, UnknownName
from headscope.page.payload import Contents, make_payload
from headscope.page.replies import Replies
from headscope.page.save_page import make_page
from headscope.page.selection import make_selection
from headscope.results.from_arrays import NO_WEIGHTS, stacked_attention
from headscope.results.trace import Trace
from headscope.text.tokens import NO_WORD, Tokens

if TYPE_CHECKING:
    from IPython.display import HTML

ACTIONS = ("view", "return")
FRAME_HEIGHT = 720


def show_or_return(trace: Trace, selection: str, html_action: str) -> HTML | None:
    """Display the explorer and return None, or return it as an `IPython.display.HTML`.

    The HTML is a frame around one self-contained page; a file with its `.data` works offline.
    """
    UnknownName.check("html_action", html_action, ACTIONS)
    payload = make_payload([trace], Contents(selection=selection))
    try:
        display = importlib.import_module("IPython.display")
        if html_action == "view":
            from headscope.page.widget import Explorer
    except ModuleNotFoundError as error:
        library = "IPython" if error.name == "IPython" else "anywidget"
        raise MissingExtra.of(library, "widget", "Showing a view in a notebook") from error
    if html_action == "view":
        display.display(Explorer(Replies([trace]), payload))
        return None
    page = html.escape(make_page(payload), quote=True)
    frame = (
        f'<div><iframe title="headscope" srcdoc="{page}" width="100%" height="{FRAME_HEIGHT}" '
        f'style="border:0;height:max({FRAME_HEIGHT}px, 95vh)"></iframe></div>'
    )
    result: HTML = display.HTML(frame)
    return result


SPECIAL = re.compile(r"\[[A-Z]+\d*\]|<[^<>\s]+>|<\|[^|]+\|>")


def head_view(
    attention: object = None,
    tokens: Sequence[str] | None = None,
    sentence_b_start: int | None = None,
    prettify_tokens: bool = True,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    encoder_attention: object = None,
    decoder_attention: object = None,
    cross_attention: object = None,
    encoder_tokens: Sequence[str] | None = None,
    decoder_tokens: Sequence[str] | None = None,
    include_layers: Sequence[int] | None = None,
    html_action: str = "view",
) -> HTML | None:
    """Show heads of one layer, as BertViz's `head_view` does.

    Args:
        attention: one `batch head query key` tensor per layer, with a batch of one.
        tokens: one string per position.
        sentence_b_start: position of the first token of the second sentence.
        prettify_tokens: remove the marks of subword tokenizers (Ġ, ▁).
        layer: layer to open; the first by default.
        heads: heads to open; all by default.
        encoder_attention: as `attention`, for the encoder of an encoder-decoder.
        decoder_attention: as `attention`, for its decoder.
        cross_attention: as `attention`, from decoder to encoder tokens.
        encoder_tokens: one string per encoder position.
        decoder_tokens: one string per decoder position.
        include_layers: layers to include; all by default.
        html_action: `view` shows the page, `return` returns an `IPython.display.HTML`.
    """
    trace = _trace(
        (attention, tokens, sentence_b_start),
        (encoder_attention, decoder_attention, cross_attention, encoder_tokens, decoder_tokens),
        prettify_tokens,
        include_layers,
        None,
    )
    opened = 0 if heads is None else list(heads)
    selection = make_selection(trace, view="head", layer=layer, heads=opened)
    return show_or_return(trace, selection, html_action)


def model_view(
    attention: object = None,
    tokens: Sequence[str] | None = None,
    sentence_b_start: int | None = None,
    prettify_tokens: bool = True,
    display_mode: str = "auto",
    encoder_attention: object = None,
    decoder_attention: object = None,
    cross_attention: object = None,
    encoder_tokens: Sequence[str] | None = None,
    decoder_tokens: Sequence[str] | None = None,
    include_layers: Sequence[int] | None = None,
    include_heads: Sequence[int] | None = None,
    html_action: str = "view",
) -> HTML | None:
    """Show all heads of all layers, as BertViz's `model_view` does.

    `display_mode` is `light`, `dark`, or `auto` to follow the notebook. `include_heads` are the
    heads to include, all by default. Other arguments are those of `head_view`.
    """
    trace = _trace(
        (attention, tokens, sentence_b_start),
        (encoder_attention, decoder_attention, cross_attention, encoder_tokens, decoder_tokens),
        prettify_tokens,
        include_layers,
        include_heads,
    )
    first = None if include_heads is None else [include_heads[0]]
    selection = make_selection(trace, view="model", heads=first, theme=display_mode)
    return show_or_return(trace, selection, html_action)


def _trace(
    single: tuple[object, Sequence[str] | None, int | None],
    pair: tuple[object, object, object, Sequence[str] | None, Sequence[str] | None],
    prettify: bool,
    layers: Sequence[int] | None,
    heads: Sequence[int] | None,
) -> Trace:
    """Return the trace of one stack, or of an encoder-decoder."""
    attention, tokens, second = single
    encoder, decoder, cross, encoder_tokens, decoder_tokens = pair
    given = {"encoder": encoder, "decoder": decoder, "cross": cross}
    arrays = {name: array for name, array in given.items() if array is not None}
    stacks: dict[str, Tokens] = {}
    if attention is not None:
        if any(argument is not None for argument in pair):
            raise InputError(
                "attention is for models with one stack: give it alone, or give "
                "encoder_attention, decoder_attention and cross_attention instead."
            )
        arrays = {"self": attention}
        stacks["self"] = _tokens(tokens, "tokens", "attention", prettify, second)
    elif not arrays:
        raise InputError(
            "There is no attention to show: give attention and tokens, or encoder_attention, "
            "decoder_attention or cross_attention with their tokens. If outputs.attentions is "
            f"None, {NO_WEIGHTS}"
        )
    for stack, texts in (("encoder", encoder_tokens), ("decoder", decoder_tokens)):
        if stack in arrays or "cross" in arrays:
            stacks[stack] = _tokens(texts, f"{stack}_tokens", "its attention", prettify, None)
    for name, weights in arrays.items():
        shape = stacked_attention(weights).shape
        queries, keys = stacks[query_stack(name, stacks)], stacks[key_stack(name, stacks)]
        if shape[2:] != (len(queries), len(keys)):
            argument = "attention" if name == "self" else f"{name}_attention"
            raise InputError(
                f"{argument} (layer, head, query, key) has shape {shape}, but there are "
                f"{len(queries)} query tokens and {len(keys)} key tokens."
            )
    trace = Trace.from_arrays(arrays, stacks)
    blocks = {}
    for name, block in trace.blocks.items():
        sizes = block.attention.sizes
        data = block.data.isel(layer=_included("include_layers", layers, sizes["layer"]))
        shown = data["head"].isin(_included("include_heads", heads, sizes["head"]))
        # Heads keep their numbers: the explorer omits those that are NaN.
        blocks[name] = replace(block, data=data.assign(attention=data["attention"].where(shown)))
    return replace(trace, blocks=blocks, provenance={**trace.provenance, "source": "bertviz"})


def _included(argument: str, numbers: Sequence[int] | None, count: int) -> list[int]:
    if numbers is None:
        return list(range(count))
    included = sorted({int(number) for number in numbers})
    if not included or included[0] < 0 or included[-1] >= count:
        raise InputError(f"{argument}={list(numbers)}: give numbers from 0 to {count - 1}.")
    return included


def _tokens(
    tokens: Sequence[str] | None, argument: str, purpose: str, prettify: bool, second: int | None
) -> Tokens:
    if tokens is None:
        raise InputError(f"{argument} is needed with {purpose}: one string per position.")
    if second is not None and not 0 < second < len(tokens):
        raise InputError(
            f"sentence_b_start={second}: give the position of the second sentence's first token, "
            f"from 1 to {len(tokens) - 1}."
        )
    special = [SPECIAL.fullmatch(token) is not None for token in tokens]
    segments = [int(second is not None and i >= second) for i in range(len(tokens))]
    marks = str.maketrans({"Ġ": " ", "▁": " "})
    pretty = [token.translate(marks).replace("</w>", "") for token in tokens]
    texts = pretty if prettify else list(tokens)
    return Tokens.of(texts, special=special, segments=segments, words=_words(tokens, special))


def _words(tokens: Sequence[str], special: Sequence[bool]) -> list[int]:
    """Return word numbers from the tokenizer's marks: ## continues, Ġ and ▁ begin a word."""
    begins = any(token.startswith(("Ġ", "▁")) for token in tokens)
    words: list[int] = []
    last = NO_WORD
    inside = False
    for token, is_special in zip(tokens, special, strict=True):
        goes_on = not token.startswith(("Ġ", "▁")) if begins else token.startswith("##")
        if is_special:
            words.append(NO_WORD)
            inside = False
            continue
        if not (goes_on and inside):
            last += 1
        words.append(last)
        inside = True
    return words
