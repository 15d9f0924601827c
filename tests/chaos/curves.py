"""Whether a job's curve has what it should: each step once, whoever wrote it."""

from itertools import pairwise

from support.waiting import eventually

from chaos.clusters import ChaosCluster
from chaos.stage import Play

_SURE_SECONDS = 30
_EVERY_STEP = "its curve has every step once"


def every_step_once(play: Play, cluster: ChaosCluster, job: str) -> None:
    """Of all steps up to the newest that is seen now, each is told, and told once."""
    newest = max(_steps(cluster, job), default=0)

    # Writers are shipped independently: what a dead one wrote may come after its successor's.
    def whole() -> bool:
        return set(range(1, newest + 1)) <= set(_steps(cluster, job))

    try:
        eventually("every step of its curve", whole, timeout=_SURE_SECONDS, every=0.2)
    except AssertionError:
        missing = sorted(set(range(1, newest)) - set(_steps(cluster, job)))[:20]
        play.report.check(_EVERY_STEP, False, f"missing {missing} of {newest}")
    steps = _steps(cluster, job)
    doubled = [step for step, then in pairwise(steps) if step >= then]
    play.report.check(_EVERY_STEP, newest and not doubled, f"doubled {doubled[:20]} of {newest}")


def _steps(cluster: ChaosCluster, job: str) -> list[int]:
    return [step for step, _ in cluster.points(job, "loss")]
