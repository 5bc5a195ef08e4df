"""`neuron_view.show` with a live Hugging Face model."""

from __future__ import annotations

import pytest

from headscope.errors import InputError


def test_show_reads_the_users_own_model() -> None:
    pytest.importorskip("IPython", reason="IPython is not installed")
    from transformers import BertConfig, BertModel

    from headscope.bertviz.neuron_view import show
    from tests.conftest import word_piece_tokenizer

    tokenizer = word_piece_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
    )
    model = BertModel(config).eval()
    html = show(
        model,
        "bert",
        tokenizer,
        "the cat sat",
        "the dog ran",
        layer=1,
        head=1,
        html_action="return",
    )
    assert "head=L1H1&amp;tab=neurons" in html.data
    assert "&quot;vectors&quot;:[{" in html.data
    with pytest.raises(InputError, match="sentence_a is empty"):
        show(model, "bert", tokenizer, "")
