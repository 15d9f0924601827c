"""What compressions send, and what they keep: with ranks that are threads."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import share_of
from torch import Tensor

from trainhall.distributed.compression.choose import choose
from trainhall.distributed.compression.error_feedback import RESIDUAL
from trainhall.distributed.compression.interface import Bucket, Compression
from trainhall.distributed.compression.largest import largest
from trainhall.distributed.compression.power_sgd import BASIS, rank_for
from trainhall.distributed.compression.top_k import sent

SHAPES = {"weight": (12, 9), "bias": (12,), "kernel": (5, 4, 3), "scale": ()}
LOSSY = ["topk", "powersgd"]


class Meeting:
    """Where the ranks' threads meet."""

    def __init__(self, world_size: int) -> None:
        self.tensors: list[Tensor] = [torch.empty(0)] * world_size
        self.barrier = Barrier(world_size, timeout=60)


class Threads:
    """An exchange in the order of ranks."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._meeting = meeting
        self.rank = rank
        self.world_size = len(meeting.tensors)
        self.bytes = 0

    def sum(self, tensor: Tensor) -> None:
        tensor.copy_(self.gather(tensor).sum(dim=0, dtype=tensor.dtype))

    def gather(self, tensor: Tensor) -> Tensor:
        assert tensor.is_contiguous()
        assert tensor.dim() == 1
        self.bytes += tensor.nbytes
        self._meeting.tensors[self.rank] = tensor.clone()
        self._meeting.barrier.wait()
        rows = torch.stack(self._meeting.tensors)
        self._meeting.barrier.wait()
        return rows


class World:
    """Ranks that combine one bucket, step by step."""

    def __init__(
        self, name: str, ratio: float, world_size: int, shapes: dict[str, tuple[int, ...]] = SHAPES
    ) -> None:
        self.shapes = shapes
        self.compressions = [choose(name, ratio) for _ in range(world_size)]
        self.bytes = 0

    def step(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The sums that each rank ends with, of flat gradients."""
        meeting = Meeting(len(gradients))

        def rank(number: int) -> Tensor:
            flat = gradients[number].clone()
            exchange = Threads(meeting, number)
            self.compressions[number].combine(bucket(flat, self.shapes), exchange)
            self.bytes = exchange.bytes
            return flat

        with ThreadPoolExecutor(len(gradients)) as pool:
            return list(pool.map(rank, range(len(gradients))))

    def residuals(self) -> list[Tensor]:
        return [residual(each, self.shapes) for each in self.compressions]


def bucket(flat: Tensor, shapes: dict[str, tuple[int, ...]]) -> Bucket:
    sizes = [torch.Size(shape).numel() for shape in shapes.values()]
    views = [p.view(s) for p, s in zip(flat.split(sizes), shapes.values(), strict=True)]
    return Bucket(0, flat, tuple(views), tuple(shapes))


def residual(compression: Compression, shapes: dict[str, tuple[int, ...]]) -> Tensor:
    state = compression.state_dict()
    return torch.cat([state[RESIDUAL + name].reshape(-1) for name in shapes])


def elements(shapes: dict[str, tuple[int, ...]]) -> int:
    return sum(torch.Size(shape).numel() for shape in shapes.values())


def drawn(seed: int, world_size: int, size: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator, dtype=dtype) for _ in range(world_size)]


@settings(max_examples=share_of(40))
@given(
    name=st.sampled_from(LOSSY),
    world_size=st.integers(1, 4),
    ratio=st.sampled_from([0.001, 0.01, 0.1, 0.5, 1.0]),
    shapes=st.lists(st.lists(st.integers(1, 7), max_size=3).map(tuple), min_size=1, max_size=4).map(
        lambda shapes: {f"p{i}": shape for i, shape in enumerate(shapes)}
    ),
    seed=st.integers(0, 99),
)
def test_compression_keeps_unsent_residuals(
    name: str, world_size: int, ratio: float, shapes: dict[str, tuple[int, ...]], seed: int
) -> None:
    """Over all ranks, what was sent and what is kept is what came in, at every step."""
    world = World(name, ratio, world_size, shapes)
    kept = torch.zeros(elements(shapes), dtype=torch.float64)
    for step in range(3):
        gradients = drawn(seed + step, world_size, elements(shapes), torch.float64)
        sums = world.step(gradients)
        assert all(torch.equal(each, sums[0]) for each in sums)
        wanted = torch.stack(gradients).sum(0) + kept
        kept = torch.stack(world.residuals()).sum(0)
        torch.testing.assert_close(sums[0] + kept, wanted, rtol=1e-12, atol=1e-12)


def test_topk_residual_is_exact() -> None:
    world = World("topk", 0.1, 1)
    (gradient,) = drawn(0, 1, elements(SHAPES), torch.float32)
    (result,) = world.step([gradient])
    (kept,) = world.residuals()
    assert torch.equal(result + kept, gradient)
    assert int(result.count_nonzero()) == sent(len(gradient), 0.1)
    assert result.abs()[result != 0].min() >= kept.abs().max()


@pytest.mark.parametrize("name", ["none", *LOSSY])
@pytest.mark.parametrize("world_size", [1, 3])
def test_ratio_of_one_sends_everything(name: str, world_size: int) -> None:
    world = World(name, 1.0, world_size)
    for step in range(3):
        gradients = drawn(step, world_size, elements(SHAPES), torch.float64)
        for result in world.step(gradients):
            torch.testing.assert_close(result, sum(gradients), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(("name", "bits"), [("fp16", 11), ("bf16", 8)])
def test_half_precision_rounds(name: str, bits: int) -> None:
    gradients = drawn(0, 3, elements(SHAPES), torch.float32)
    world = World(name, 1.0, 3)
    exact = torch.stack(gradients).sum(0)
    largest_one = torch.stack(gradients).abs().sum(0)
    for result in world.step(gradients):
        assert ((result - exact).abs() <= 3 * largest_one * 2.0**-bits).all()
    assert world.bytes == 2 * elements(SHAPES)


@pytest.mark.parametrize("name", LOSSY)
def test_residuals_arrive_over_several_steps(name: str) -> None:
    """The same gradient at every step: the mean of what was sent goes towards it as 1/steps."""
    gradients = drawn(1, 2, elements(SHAPES), torch.float64)
    exact = torch.stack(gradients).sum(0)
    world = World(name, 0.1, 2)
    total = torch.zeros_like(exact)
    errors = []
    for step in range(1, 201):
        total += world.step(gradients)[0]
        errors.append(float((total / step - exact).norm() / exact.norm()))
    assert errors[-1] < 0.1
    assert errors[199] < 0.6 * errors[99]


@pytest.mark.parametrize("name", ["fp16", "bf16", *LOSSY])
def test_compression_state_determines_the_next_step(name: str) -> None:
    size = elements(SHAPES)
    world, again = World(name, 0.1, 3), World(name, 0.1, 3)
    for step in range(2):
        world.step(drawn(step, 3, size, torch.float32))
    for old, new in zip(world.compressions, again.compressions, strict=True):
        new.load_state_dict({key: value.clone() for key, value in old.state_dict().items()})
    for step in range(2, 4):
        gradients = drawn(step, 3, size, torch.float32)
        pairs = zip(world.step(gradients), again.step(gradients), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def test_compression_survives_new_bucket_layout() -> None:
    """Residuals follow the parameters."""
    compression = choose("topk", 0.1)
    exchange = Threads(Meeting(1), 0)
    (flat,) = drawn(0, 1, elements(SHAPES), torch.float32)
    compression.combine(bucket(flat, SHAPES), exchange)
    before = {k: v.clone() for k, v in compression.state_dict().items()}
    # Nothing new comes: the largest of what is kept is sent.
    for name, shape in reversed(SHAPES.items()):
        zeros = torch.zeros(elements({name: shape}))
        compression.combine(bucket(zeros, {name: shape}), exchange)
        after = compression.state_dict()
        assert torch.equal(after[RESIDUAL + name] + zeros.view(shape), before[RESIDUAL + name])
    assert after.keys() == before.keys()


def test_residuals_have_parameter_shapes_for_any_layout() -> None:
    flat = torch.arange(24.0)
    gradient = flat.view(2, 3, 4).permute(0, 2, 1)
    compression = choose("topk", 0.01)
    compression.combine(Bucket(0, flat, (gradient,), ("kernel",)), Threads(Meeting(1), 0))
    kept = compression.state_dict()[RESIDUAL + "kernel"]
    assert kept.shape == (2, 4, 3)
    assert torch.equal(kept + gradient, torch.arange(24.0).view(2, 3, 4).permute(0, 2, 1))


@pytest.mark.parametrize("name", ["none", "fp16", "bf16", *LOSSY])
@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("index", [0, 110])
def test_overflow_reaches_all_ranks_and_is_dropped(name: str, bad: float, index: int) -> None:
    size = elements(SHAPES)
    world = World(name, 0.05, 3)
    world.step(drawn(0, 3, size, torch.float32))
    gradients = drawn(1, 3, size, torch.float32)
    gradients[1][index] = bad
    assert all(not result.isfinite().all() for result in world.step(gradients))
    for compression in world.compressions:
        assert all(tensor.isfinite().all() for tensor in compression.state_dict().values())
    assert all(r.isfinite().all() for r in world.step(drawn(2, 3, size, torch.float32)))


@pytest.mark.parametrize("name", ["none", "fp16", "bf16", *LOSSY])
def test_zeros_stay_zeros_and_block_nothing(name: str) -> None:
    size = elements(SHAPES)
    world = World(name, 0.1, 2)
    zeros = [torch.zeros(size), torch.zeros(size)]
    for _ in range(2):
        assert not any(result.any() for result in world.step(zeros))
    exact = drawn(3, 2, size, torch.float32)
    assert all(result.any() for result in world.step(exact))


@pytest.mark.parametrize("name", LOSSY)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_type_of_gradient(name: str, dtype: torch.dtype) -> None:
    world = World(name, 0.3, 2)
    results = world.step(drawn(0, 2, elements(SHAPES), dtype))
    assert results[0].dtype == dtype
    assert torch.equal(*results)
    assert results[0].any()


def test_residuals_pass_from_one_compression_to_another() -> None:
    size = elements(SHAPES)
    world = World("topk", 0.01, 2)
    first = world.step(drawn(0, 2, size, torch.float64))[0]
    then = World("powersgd", 0.2, 2)
    for old, new in zip(world.compressions, then.compressions, strict=True):
        new.load_state_dict(old.state_dict())
    second = then.step([torch.zeros(size, dtype=torch.float64)] * 2)[0]
    kept = torch.stack(then.residuals()).sum(0)
    wanted = torch.stack(drawn(0, 2, size, torch.float64)).sum(0)
    torch.testing.assert_close(first + second + kept, wanted, rtol=1e-12, atol=1e-12)


def test_powersgd_sends_little_and_starts_where_it_was() -> None:
    shapes = {"weight": (200, 300), "bias": (200,)}
    world = World("powersgd", 0.05, 2, shapes)
    left, right = torch.randn(200, 3), torch.randn(3, 300)
    low_rank = torch.cat([(left @ right).view(-1), torch.randn(200)])
    assert rank_for((200, 300), 0.05) == 6
    # An approximation of rank 6 has room for a gradient of rank 3.
    for _ in range(2):
        result = world.step([low_rank / 2] * 2)[0]
        assert float((result - low_rank).norm()) < 1e-3 * float(low_rank.norm())
    assert world.bytes == 4 * (6 * 500 + 200)
    assert world.compressions[0].state_dict()[BASIS + "weight"].shape == (300, 6)


@pytest.mark.parametrize(
    ("shape", "ratio", "rank"),
    [
        ((12,), 0.1, None),
        ((), 0.1, None),
        ((0, 4), 0.1, None),
        ((1, 400), 0.5, None),
        ((512, 512, 3, 3), 0.01, 4),
        ((64, 3, 7, 7), 0.01, 1),
        ((200, 300), 0.999, 119),
        ((200, 300), 1.0, None),
    ],
)
def test_rank_follows_from_the_ratio(
    shape: tuple[int, ...], ratio: float, rank: int | None
) -> None:
    assert rank_for(shape, ratio) == rank


def adversaries() -> list[Callable[[int], Tensor]]:
    def hidden(size: int) -> Tensor:
        """Everything large lies between the numbers that are sampled first."""
        numbers = torch.full((size,), 1e-3)
        numbers[::128] = 1.0
        numbers[1::128] = 2.0
        return numbers

    def few(size: int) -> Tensor:
        numbers = torch.zeros(size)
        numbers[:5] = torch.tensor([3.0, -4.0, 5.0, float("nan"), float("-inf")])
        return numbers

    def plain(size: int) -> Tensor:
        return torch.randn(size, generator=torch.Generator().manual_seed(size))

    return [plain, hidden, few, torch.zeros, torch.ones]


@pytest.mark.parametrize("make", adversaries())
@pytest.mark.parametrize("size", [1, 2, 100, 1 << 14, 40_003])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.3, 1.0])
def test_largest_are_found(make: Callable[[int], Tensor], size: int, share: float) -> None:
    numbers = make(max(size, 5))[:size]
    count = sent(size, share)
    indices = largest(numbers, count)
    assert len(indices.unique()) == count
    sizes = numbers.abs().nan_to_num(nan=float("inf"))
    expected = sizes.sort(descending=True).values[:count]
    assert torch.equal(sizes[indices].sort(descending=True).values, expected)
    assert torch.equal(indices, largest(numbers.clone(), count))


@pytest.mark.parametrize("ratio", [0, -0.1, 1.01, float("nan")])
def test_bad_ratios_are_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match="ratio must be above 0 and at most 1"):
        choose("topk", ratio)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="there are none, fp16, bf16, topk and powersgd"):
        choose("zip", 0.1)
