"""Gradients that travel in half precision."""

import torch

from trainhall.distributed.compression.interface import Bucket, Exchange, Stateless


class Half(Stateless):
    """Every number in two bytes: `float16` or `bfloat16`; what rounding takes is not sent later.

    `float16` keeps 11 bits, but nothing beyond 65,504 (it becomes an infinity) and little below
    6e-5; `bfloat16` keeps 8 bits over float32's whole range.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def combine(self, bucket: Bucket, exchange: Exchange) -> None:
        half = bucket.flat.to(self.dtype)
        exchange.sum(half)
        bucket.flat.copy_(half)
