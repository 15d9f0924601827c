"""Plans of simulated hosts: quick, and slightly off."""

from trainhall.cluster.simulator.workload.curves import Model, model_of
from trainhall.training.common.units import size_text
from trainhall.training.link.launch import Launch
from trainhall.training.spec import JobSpec, SpecError
from trainhall.training.spec.plan import (
    ChosenPlan,
    PlanAlternative,
    PlanningFailedError,
    PlanPrediction,
    PlanRequest,
)
from trainhall.training.spec.strategies import candidates, with_mesh

_SHARES = {"ddp": 0.92, "fsdp": 0.55, "tensor": 0.5}
"""Share of a model's memory under ddp, by strategy in the order of preference."""
_OPTIMISM = 0.9
"""Predicted by actual time of a step."""
_KINDS = {"parameters": 0.14, "gradients": 0.14, "optimizer": 0.28, "activations": 0.42}
"""Shares of the memory; buffers have the rest."""


def plan(launch: Launch) -> ChosenPlan:
    """Return the first strategy that the job may have and that fits, or the one that it names.

    Raises:
        PlanningFailedError: there is none.
    """
    asked = launch.planning
    assert asked is not None
    model = model_of(launch.spec)
    peaks = {s: round(model.memory * share) for s, share in _SHARES.items()}
    possible = [
        (strategy, mesh)
        for strategy, mesh in candidates(asked.workers)
        if strategy in peaks and _allowed(launch.spec, asked.workers, strategy, mesh)
    ]
    if not possible:
        raise PlanningFailedError("no strategy can train this job on so many workers")
    if asked.own_strategy:
        own = launch.spec.parallelism.strategy
        named = next(((strategy, mesh) for strategy, mesh in possible if strategy == own), None)
        if named is None:
            raise PlanningFailedError(f"strategy {own} is not simulated")
        return _chosen(*named, asked, model, peaks)
    limit = asked.device.memory
    for strategy, mesh in possible:
        if limit is None or peaks[strategy] <= limit:
            return _chosen(strategy, mesh, asked, model, peaks)
    least = min(peaks[strategy] for strategy, _ in possible)
    assert limit is not None
    raise PlanningFailedError(
        f"nothing fits: the least that is needed is {size_text(least - limit)} too much"
    )


def _allowed(spec: JobSpec, workers: int, strategy: str, mesh: dict[str, int]) -> bool:
    try:
        with_mesh(spec, workers, strategy, mesh)
    except SpecError:
        return False
    return True


def _chosen(
    strategy: str, mesh: dict[str, int], asked: PlanRequest, model: Model, peaks: dict[str, int]
) -> ChosenPlan:
    factors = asked.calibration
    peak = round(peaks[strategy] * factors.memory)
    seconds = model.step_seconds * _OPTIMISM * factors.time
    memory = {kind: round(peak * share) for kind, share in _KINDS.items()}
    memory["buffers"] = peak - sum(memory.values())
    mesh_text = " × ".join(f"{name} {size}" for name, size in mesh.items() if size > 1)
    words = f"{strategy} ({mesh_text})" if mesh_text else strategy
    fastest = "takes" if asked.own_strategy else "has the shortest step,"
    all_ = f" of {size_text(asked.device.memory)}" if asked.device.memory is not None else ""
    return ChosenPlan(
        parallelism={"strategy": strategy, **mesh},
        summary=words,
        reason=f"{words} {fastest} {seconds:.3g} s, and needs {size_text(peak)}{all_}",
        assumed=f"{asked.device.name}, simulated",
        device=asked.device.name,
        prediction=PlanPrediction(
            peak_memory_bytes=peak,
            memory=memory,
            step_seconds=seconds,
            communication_bytes=2 * 4 * model.parameters,
            memory_limit=asked.device.memory,
            smaller=[
                PlanAlternative(summary=other, peak_memory_bytes=size)
                for other, size in sorted(peaks.items(), key=lambda item: item[1])
                if size < peak
            ],
        ),
        calibration=factors,
        is_named=asked.own_strategy,
    )
