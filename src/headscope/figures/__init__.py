"""Figures of the papers from any result, in matplotlib."""
