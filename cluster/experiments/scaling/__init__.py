"""Scaling studies: speed-up over workers, measured and predicted; imports `benchmark`."""
