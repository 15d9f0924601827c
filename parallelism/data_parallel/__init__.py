"""Replicas or shards of a model, and how their gradients are combined.

It imports `strategy` and what that may, but not `pipelining`.
"""
