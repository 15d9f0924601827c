"""Optimizers, learning rates and low precision; imports `spec`."""
