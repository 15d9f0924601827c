"""What projects and users hold, while a pass of the scheduler grants more."""

from trainhall.cluster.facts import ClusterFacts, JobFacts
from trainhall.cluster.lifecycle import ACTIVE_STATES
from trainhall.cluster.quotas import Quota, Quotas
from trainhall.cluster.running import active_attempts, given_up


class QuotaUse:
    def __init__(self, quotas: Quotas, facts: ClusterFacts) -> None:
        self._quotas = quotas
        self._none = not (quotas.projects or quotas.users)
        self._used: dict[tuple[str, str], int] = {}
        if not self._none:
            self._count(facts)

    def room(self, job: JobFacts) -> int | None:
        """How many devices the job may take now; None: no quota holds for it."""
        if self._none:
            return None
        left = [quota.devices - self._used_of(quota) for quota in self._of(job)]
        return max(0, min(left)) if left else None

    def take(self, job: JobFacts, count: int) -> None:
        if self._none:
            return
        for quota in self._of(job):
            self._used[quota.what, quota.name] = self._used_of(quota) + count

    def too_small(self, job: JobFacts) -> Quota | None:
        """A quota that the job could not keep to if it were alone."""
        return next((q for q in self._of(job) if q.devices < job.sizes[0]), None)

    def reason(self, job: JobFacts) -> str:
        """Why a job waits that `room` leaves too little for."""
        quota = self.too_small(job)
        if quota is not None:
            return (
                f"{_said(quota)}: ask for fewer workers, or have whoever runs the cluster raise it"
            )
        full = next(q for q in self._of(job) if q.devices - self._used_of(q) < job.sizes[0])
        used = self._used_of(full)
        return f"{_said(full)}, of which {used} {'is' if used == 1 else 'are'} in use"

    def _of(self, job: JobFacts) -> list[Quota]:
        return self._quotas.of(job.project, job.user)

    def _used_of(self, quota: Quota) -> int:
        return self._used.get((quota.what, quota.name), 0)

    def _count(self, facts: ClusterFacts) -> None:
        jobs = {job.id: job for job in facts.jobs if job.state in ACTIVE_STATES}
        left = given_up(active_attempts(facts), facts.grants)
        for grant in facts.grants:
            # What an attempt or a generation that was given up still holds is not held against the
            # next one.
            job = jobs.get(grant.job_id)
            place = (grant.node_id, grant.device_index)
            if job is not None and grant.attempt == job.attempt and place not in left:
                self.take(job, 1)


def _said(quota: Quota) -> str:
    devices = f"{quota.devices} device{'' if quota.devices == 1 else 's'}"
    return f"the quota of {quota.what} {quota.name} is {devices}"
