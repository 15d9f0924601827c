"""Predictions of memory and step time, from traces of a model; imports the strategies."""
