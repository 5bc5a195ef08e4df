"""Heads as classifiers, and probes trained on all of them (Clark et al. 2019, sections 4, 5)."""
