"""Simulated work of ranks: steps, metrics, output, checkpoints; imports ranks, and no host."""
