"""Simulated work of ranks over time: steps, metrics, output, checkpoints, gradients."""
