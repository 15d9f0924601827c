"""Facts of a cluster, as decisions are made from: what a test does not say is usual."""

from datetime import UTC, datetime
from typing import Any

from trainhall.cluster.lifecycle.host_report import HostReport
from trainhall.cluster.lifecycle.states import AttemptState, JobState, NodeState
from trainhall.cluster.snapshot.model import (
    AttemptFacts,
    DeviceFacts,
    HostFacts,
    JobFacts,
    NodeFacts,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def node_facts(name: str = "a", slots: int = 1, kind: str = "cpu", **more: Any) -> NodeFacts:
    """A node in service with free devices."""
    usual: dict[str, Any] = {
        "id": name, "name": name, "state": NodeState.READY, "removing": False,
        "seconds_since_heartbeat": 0.0,
        "devices": tuple(DeviceFacts(index, kind) for index in range(slots)),
    }  # fmt: skip
    return NodeFacts(**usual | more)


def job_facts(**more: Any) -> JobFacts:
    """A job of one worker in its first attempt."""
    usual: dict[str, Any] = {
        "id": "job", "number": 1, "priority": 0, "state": JobState.RUNNING, "reason": "x",
        "attempt": 1, "workers": 1, "device": "cpu", "queued_at": NOW,
        "restarts": 0, "restarts_step": 0, "max_restarts": 3, "step": 0,
    }  # fmt: skip
    return JobFacts(**usual | more)


def host_facts(*reports: HostReport | None) -> tuple[HostFacts, ...]:
    """Hosts `a`, `b`, … with their last reports."""
    names = "abcdefgh"[: len(reports)]
    return tuple(HostFacts(name, name, each) for name, each in zip(names, reports, strict=True))


def attempt_facts(hosts: tuple[HostFacts, ...], **more: Any) -> AttemptFacts:
    """The job's first attempt, which runs."""
    usual: dict[str, Any] = {
        "job_id": "job", "number": 1, "generation": 1, "state": AttemptState.RUNNING,
        "goal": "run", "failure": None, "hosts": hosts,
    }  # fmt: skip
    return AttemptFacts(**usual | more)
