"""Runs over corpora: a plan, shards, workers, checkpoints."""
