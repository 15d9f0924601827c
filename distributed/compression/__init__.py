"""Compressed gradients, sent instead of whole ones; imports `collectives`."""
