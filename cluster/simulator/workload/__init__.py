"""Simulated work of ranks: steps, metrics, output, checkpoints; imports no host."""
