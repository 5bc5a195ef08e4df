"""BertViz 1.4.1's `head_view` and `model_view`, shown in a notebook or returned as HTML."""

from __future__ import annotations

import html
import importlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from headscope.attention import BlockName
from headscope.errors import InputError, MissingExtra, UnknownName
from headscope.page.payload import Contents, make_payload
from headscope.page.replies import Replies
from headscope.page.save_page import make_page
from headscope.page.selection import make_selection
from headscope.results.from_arrays import looks_causal, stacked_attention
from headscope.results.trace import Block, Trace, attention_dataset
from headscope.text.tokens import NO_WORD, Tokens

if TYPE_CHECKING:
    from IPython.display import HTML

ACTIONS = ("view", "return")
FRAME_HEIGHT = 720


def show_or_return(trace: Trace, selection: str, html_action: str) -> HTML | None:
    """Display the explorer and return None, or return it as an `IPython.display.HTML`.

    The HTML is a frame around one self-contained page; a file with its `.data` works offline.
    """
    if html_action not in ACTIONS:
        raise UnknownName.of("html_action", html_action, ACTIONS)
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
    provenance = {"model": "attention", "source": "bertviz"}
    if attention is not None:
        if any(argument is not None for argument in pair):
            raise InputError(
                "attention is for models with one stack: give it alone, or give "
                "encoder_attention, decoder_attention and cross_attention instead."
            )
        sequence = _tokens(tokens, "tokens", "attention", prettify, second)
        block = _block("self", attention, "attention", sequence, sequence, layers, heads)
        return Trace({"self": block}, {"self": sequence}, {}, provenance)
    stacks: dict[str, Tokens] = {}
    for stack, texts, arguments in (
        ("encoder", encoder_tokens, (encoder, cross)),
        ("decoder", decoder_tokens, (decoder, cross)),
    ):
        if any(argument is not None for argument in arguments):
            stacks[stack] = _tokens(texts, f"{stack}_tokens", "its attention", prettify, None)
    blocks: dict[str, Block] = {}
    for block_name, weights, queries, keys in (
        ("encoder", encoder, "encoder", "encoder"),
        ("decoder", decoder, "decoder", "decoder"),
        ("cross", cross, "decoder", "encoder"),
    ):
        if weights is not None:
            argument = f"{block_name}_attention"
            tokens_of = stacks[queries], stacks[keys]
            name = cast("BlockName", block_name)
            blocks[name] = _block(name, weights, argument, *tokens_of, layers, heads)
    if not blocks:
        raise InputError(
            "There is no attention to show: give attention and tokens, or encoder_attention, "
            "decoder_attention or cross_attention with their tokens."
        )
    return Trace(blocks, stacks, {}, provenance)


def _block(
    name: BlockName,
    weights: object,
    argument: str,
    queries: Tokens,
    keys: Tokens,
    layers: Sequence[int] | None,
    heads: Sequence[int] | None,
) -> Block:
    stacked = stacked_attention(weights)
    if stacked.shape[2:] != (len(queries), len(keys)):
        raise InputError(
            f"{argument} (layer, head, query, key) has shape {stacked.shape}, but there are "
            f"{len(queries)} query tokens and {len(keys)} key tokens."
        )
    layer_numbers = _included("include_layers", layers, stacked.shape[0])
    head_numbers = _included("include_heads", heads, stacked.shape[1])
    stacked = stacked[layer_numbers].copy()
    hidden = [head for head in range(stacked.shape[1]) if head not in head_numbers]
    stacked[:, hidden] = np.nan  # heads keep their numbers; the explorer omits these
    is_causal = name != "cross" and looks_causal(stacked)
    return Block(name, attention_dataset(stacked, layer_numbers), queries, keys, is_causal)


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
    if prettify:
        marks = str.maketrans({"Ġ": " ", "▁": " "})
        texts = [token.translate(marks).replace("</w>", "") for token in tokens]
    else:
        texts = list(tokens)
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
