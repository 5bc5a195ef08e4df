"""Benchmark of heads as classifiers."""
