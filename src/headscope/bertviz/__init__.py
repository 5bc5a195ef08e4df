"""BertViz's functions on top of the explorer: import `headscope.bertviz` instead of `bertviz`.

    from headscope.bertviz.neuron_view import show
    from headscope.bertviz.transformers_neuron_view import BertModel, BertTokenizer

The signatures are those of BertViz 1.4.1. Differences: each function opens the explorer at its
view; views follow the notebook's theme by default; `html_action="return"` gives one page without
a CDN.
"""

from headscope.bertviz.views import head_view, model_view

__all__ = ["head_view", "model_view", "neuron_view"]
