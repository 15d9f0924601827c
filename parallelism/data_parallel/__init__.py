"""Replicas or shards of a model, and their gradients; imports no `pipelining`."""
