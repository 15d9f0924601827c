"""Optimizers, learning rates and low precision."""
