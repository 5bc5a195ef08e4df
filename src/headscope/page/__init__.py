"""Interactive views of a trace: the explorer, in a notebook and as one offline page."""
