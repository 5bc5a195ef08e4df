"""BertViz's functions on top of the explorer: write `headscope.bertviz` where it says `bertviz`.

    from headscope.bertviz.neuron_view import show
    from headscope.bertviz.transformers_neuron_view import BertModel, BertTokenizer

The signatures are those of BertViz 1.4.1. What differs: the three views are one page with
one selection, so each function opens the explorer at its view; `display_mode="dark"` is not
the default (views follow the notebook); `html_action="return"` gives one page without a CDN.
"""

from headscope.bertviz.views import head_view, model_view

__all__ = ["head_view", "model_view", "neuron_view"]
