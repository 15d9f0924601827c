"""Stages of a model, and micro-batches that pass between ranks; imports no `data_parallel`."""
