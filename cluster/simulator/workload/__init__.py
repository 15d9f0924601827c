"""Simulated work of ranks: steps, metrics, output, checkpoints, gradients.

It imports `training.link`, and no host.
"""
