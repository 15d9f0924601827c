"""Gradients that a job records for people; imports `link` and `parallelism`."""
