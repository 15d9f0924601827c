"""The tensors that the ranks of the benchmark combine."""

from math import prod

from trainhall.distributed.bench.ranks import BUCKET_ELEMENTS, make_buckets, resnet18


def test_gradients_of_a_resnet_18_in_buckets() -> None:
    parameters = 11_689_512
    assert sum(map(prod, resnet18())) == parameters
    buckets = make_buckets(0, 2)
    assert sum(len(bucket.flat) for bucket in buckets) == parameters
    assert all(len(bucket.flat) <= BUCKET_ELEMENTS for bucket in buckets)
    shapes = [tuple(gradient.shape) for bucket in buckets for gradient in bucket.gradients]
    assert shapes == resnet18()
