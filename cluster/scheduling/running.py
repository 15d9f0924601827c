"""Running jobs: the devices that they hold, until when, and which of them could release some."""

from collections.abc import Callable, Iterable, Mapping, Set
from datetime import datetime
from functools import cached_property

from trainhall.cluster.lifecycle.states import ACTIVE_ATTEMPT_STATES, JobState
from trainhall.cluster.scheduling.estimates import expected_end
from trainhall.cluster.scheduling.placement import DeviceKey
from trainhall.cluster.scheduling.preemption import Candidate
from trainhall.cluster.snapshot.model import AttemptFacts, ClusterFacts, GrantFacts, JobFacts


def active_attempts(facts: ClusterFacts) -> Mapping[str, AttemptFacts]:
    """Return the active attempt of each job that has one."""
    return {a.job_id: a for a in facts.attempts if a.state in ACTIVE_ATTEMPT_STATES}


def released(attempts: Mapping[str, AttemptFacts], grants: Iterable[GrantFacts]) -> Set[DeviceKey]:
    """Return the devices that a regrouping has left, and that are not free yet.

    Args:
        attempts: the active ones.
    """
    kept = {
        (host.node_id, index)
        for attempt in attempts.values()
        if attempt.in_place
        for host in attempt.hosts
        for index in host.devices
    }
    return {
        device
        for grant in grants
        if (attempt := attempts.get(grant.job_id)) is not None
        and attempt.in_place
        and (device := (grant.node_id, grant.device_index)) not in kept
    }


class Running:
    def __init__(self, now: datetime, facts: ClusterFacts) -> None:
        self._now = now
        self._facts = facts

    @cached_property
    def attempts(self) -> Mapping[str, AttemptFacts]:
        return active_attempts(self._facts)

    @cached_property
    def ending(self) -> Set[str]:
        """Return the ids of jobs that were asked to end."""
        return {job_id for job_id, attempt in self.attempts.items() if attempt.goal != "run"}

    @cached_property
    def ends(self) -> Mapping[str, datetime]:
        """When jobs are expected to end, of those of which it is known."""
        found = {}
        for job in self._facts.jobs:
            attempt = self.attempts.get(job.id)
            end = expected_end(self._now, job, attempt) if attempt is not None else None
            if end is not None:
                found[job.id] = end
        return found

    @cached_property
    def coming(self) -> Mapping[DeviceKey, datetime | None]:
        """When each device that is held comes free; None: unknown."""
        coming: dict[DeviceKey, datetime | None] = {
            (grant.node_id, grant.device_index): None for grant in self._facts.grants
        }
        for device, attempt in self._held.items():
            coming[device] = self.ends.get(attempt.job_id)
        return coming | dict.fromkeys(self.leaving, self._now)

    @cached_property
    def leaving(self) -> Set[DeviceKey]:
        """Devices that come free without anyone's help."""
        return {device for device, attempt in self._held.items() if attempt.goal != "run"} | {
            device for device in released(self.attempts, self._facts.grants) if device in self._held
        }

    def candidates(
        self, allows: Callable[[JobFacts], bool], node_ids: Set[str], devices: Set[DeviceKey]
    ) -> list[Candidate]:
        """Return jobs that could be preempted, with what they hold of these nodes and devices."""
        held: dict[str, dict[str, list[int]]] = {}
        for device, attempt in self._held.items():
            node_id, index = device
            if node_id in node_ids and device in devices and device not in self.leaving:
                held.setdefault(attempt.job_id, {}).setdefault(node_id, []).append(index)
        return [
            Candidate(
                job,
                self.attempts[job.id],
                {n: tuple(sorted(i)) for n, i in sorted(held[job.id].items())},
            )
            for job in self._facts.jobs
            if job.id in held
            and job.preemption
            and job.state in (JobState.STARTING, JobState.RUNNING)
            and allows(job)
        ]

    @cached_property
    def _held(self) -> Mapping[DeviceKey, AttemptFacts]:
        """The active attempts that hold devices."""
        return {
            (grant.node_id, grant.device_index): attempt
            for grant in self._facts.grants
            if (attempt := self.attempts.get(grant.job_id)) is not None
            and attempt.number == grant.attempt
        }
