"""Running jobs: the devices that they hold, until when, and which of them could give some up."""

from collections.abc import Callable, Iterable, Mapping, Set
from datetime import datetime
from functools import cached_property

from trainhall.cluster.lifecycle.states import ACTIVE_ATTEMPT_STATES, JobState
from trainhall.cluster.scheduling.estimates import expected_end
from trainhall.cluster.scheduling.preemption import Candidate
from trainhall.cluster.snapshot.model import AttemptFacts, ClusterFacts, GrantFacts, JobFacts

Place = tuple[str, int]
"""A device: node id and index."""


def active_attempts(facts: ClusterFacts) -> Mapping[str, AttemptFacts]:
    """Return the active attempt of each job that has one."""
    return {a.job_id: a for a in facts.attempts if a.state in ACTIVE_ATTEMPT_STATES}


def released(attempts: Mapping[str, AttemptFacts], grants: Iterable[GrantFacts]) -> Set[Place]:
    """Devices that a regrouping has left, and that are not free yet.

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
        place
        for grant in grants
        if (attempt := attempts.get(grant.job_id)) is not None
        and attempt.in_place
        and (place := (grant.node_id, grant.device_index)) not in kept
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
    def coming(self) -> Mapping[Place, datetime | None]:
        """When each device that is held comes free; None: nobody knows."""
        coming: dict[Place, datetime | None] = {
            (grant.node_id, grant.device_index): None for grant in self._facts.grants
        }
        for place, attempt in self._held.items():
            coming[place] = self.ends.get(attempt.job_id)
        return coming | dict.fromkeys(self.leaving, self._now)

    @cached_property
    def leaving(self) -> Set[Place]:
        """Devices that come free without anyone's help."""
        return {place for place, attempt in self._held.items() if attempt.goal != "run"} | {
            place for place in released(self.attempts, self._facts.grants) if place in self._held
        }

    def candidates(
        self, allows: Callable[[JobFacts], bool], node_ids: Set[str], places: Set[Place]
    ) -> list[Candidate]:
        """Jobs that could make room, with what they hold of these nodes and devices."""
        held: dict[str, dict[str, list[int]]] = {}
        for place, attempt in self._held.items():
            node_id, index = place
            if node_id in node_ids and place in places and place not in self.leaving:
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
    def _held(self) -> Mapping[Place, AttemptFacts]:
        """The active attempts that hold devices."""
        return {
            (grant.node_id, grant.device_index): attempt
            for grant in self._facts.grants
            if (attempt := self.attempts.get(grant.job_id)) is not None
            and attempt.number == grant.attempt
        }
