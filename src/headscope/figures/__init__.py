"""The papers' figures, from any result, in matplotlib."""
