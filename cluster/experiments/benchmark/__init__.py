"""Benchmarks: the table of combinations of values, and ratios to a baseline; imports `analysis`."""
