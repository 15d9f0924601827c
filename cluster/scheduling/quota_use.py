"""Devices held by projects and users, while a pass of the scheduler grants more."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime

from trainhall.cluster.lifecycle.states import ACTIVE_STATES
from trainhall.cluster.quotas import Quota, Quotas
from trainhall.cluster.scheduling import reasons
from trainhall.cluster.scheduling.running import active_attempts, released
from trainhall.cluster.snapshot.model import ClusterFacts, JobFacts

Account = tuple[str, str]
"""`project` or `user`, and its name."""


class QuotaUse:
    def __init__(self, quotas: Quotas, facts: ClusterFacts) -> None:
        self._quotas = quotas
        self._none = not (quotas.projects or quotas.users)
        self._used: dict[Account, int] = {}
        self._held: defaultdict[Account, Counter[str]] = defaultdict(Counter)
        """Devices by the ids of the jobs that hold them."""
        self._labels = reasons.Labels(facts.jobs)
        if not self._none:
            held = devices_held(facts)
            for job in facts.jobs:
                if count := held[job.id]:
                    self.take(job, count)

    def headroom(self, job: JobFacts) -> int | None:
        """Return how many devices the job may take now; None: no quota applies to it."""
        if self._none:
            return None
        left = [quota.devices - self._used_of(quota) for quota in self._of(job)]
        return max(0, min(left)) if left else None

    def headroom_from(
        self, job: JobFacts, ends: Mapping[str, datetime]
    ) -> tuple[datetime | None, list[str]]:
        """When the job's quotas leave it enough, by the ends of the jobs that hold them. If that is
        not known, None and the ids of those of which no end is known.

        Args:
            job: one that they leave too little now.
            ends: expected ones, by job id.
        """
        times: list[datetime] = []
        endless: dict[str, None] = {}
        for quota in self._of(job):
            missing = job.sizes[0] - (quota.devices - self._used_of(quota))
            held = self._held[quota.what, quota.name]
            for end, job_id in sorted((ends[i], i) for i in held if i in ends):
                if missing <= 0:
                    break
                missing -= held[job_id]
                if missing <= 0:
                    times.append(end)
            if missing > 0:
                endless |= {job_id: None for job_id in sorted(held) if job_id not in ends}
        return (None, list(endless)) if endless or not times else (max(times), [])

    def take(self, job: JobFacts, count: int) -> None:
        if self._none:
            return
        for quota in self._of(job):
            account = (quota.what, quota.name)
            self._used[account] = self._used_of(quota) + count
            self._held[account][job.id] += count

    def too_small(self, job: JobFacts) -> Quota | None:
        """Return the smallest quota that the job could not keep to if it were alone."""
        small = (q for q in self._of(job) if q.devices < job.sizes[0])
        return min(small, key=lambda quota: quota.devices, default=None)

    def reason(self, job: JobFacts) -> str:
        """Why a job waits that `headroom` leaves too little for."""
        quota = self.too_small(job)
        if quota is not None:
            return reasons.quota_too_small(quota)
        full = next(q for q in self._of(job) if q.devices - self._used_of(q) < job.sizes[0])
        return reasons.over_quota(full, self._held[full.what, full.name], self._labels, job)

    def _of(self, job: JobFacts) -> list[Quota]:
        return self._quotas.of(job.project, job.user)

    def _used_of(self, quota: Quota) -> int:
        return self._used.get((quota.what, quota.name), 0)


def devices_held(facts: ClusterFacts) -> Counter[str]:
    """Return the devices that count against the quotas of each job that holds some, by its id."""
    attempts = {job.id: job.attempt for job in facts.jobs if job.state in ACTIVE_STATES}
    left = released(active_attempts(facts), facts.grants)
    # Devices that a superseded attempt or generation still holds do not count against the next
    # one.
    return Counter(
        grant.job_id
        for grant in facts.grants
        if attempts.get(grant.job_id) == grant.attempt
        and (grant.node_id, grant.device_index) not in left
    )
