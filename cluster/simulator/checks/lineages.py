"""Lineages: steps of the newest generation of the newest attempt count, from where it resumes.

Ranks that a regrouping left out, or of an attempt that was replaced, may run on beside it. Their
reports are searched for where they would show: in the job's step, its checkpoints, and its curve.
"""

import json
from collections.abc import Mapping

from trainhall.cluster.simulator.checks.violation import Check, Inspected
from trainhall.cluster.simulator.counting import value_of
from trainhall.cluster.simulator.ranks import Group

VOID = "4 superseded ranks"

STEPPED = f"{VOID}: ranks took a step beside a later generation of their attempt"
MEASURED_VOID = f"{VOID}: what they measured came after it had begun"
EXERCISED = (STEPPED, MEASURED_VOID)

_Token = tuple[int, int]
"""Attempt and generation."""


class Lineages(Check):
    """Check which steps count."""

    def __init__(self, inspected: Inspected) -> None:
        super().__init__(inspected)
        self._newest: dict[str, _Token] = {}
        """Token of the ranks that joined last, by job."""
        self._reached: dict[str, int] = {}
        """The step that they have come to."""
        self._taken: dict[str, dict[int, _Token]] = {}
        """Token that took each step of a job, of those that count."""
        self._checkpoints = 0
        """Up to this row they have been checked."""

    def joined(self, group: Group) -> None:
        """Record the step from which the ranks of a generation continue."""
        job_id, token = group.launch.job_id, _token(group)
        if token < self._newest.get(job_id, token):
            return
        self._newest[job_id], self._reached[job_id] = token, group.step
        before = self._taken.get(job_id, {})
        self._taken[job_id] = {s: who for s, who in before.items() if s <= group.step}

    def stepped(self, group: Group) -> None:
        job_id, token = group.launch.job_id, _token(group)
        newest = self._newest[job_id]
        if token == newest:
            self._reached[job_id] = group.step
            self._taken[job_id][group.step] = token
        elif token[0] == newest[0]:
            self._story.exercised[STEPPED] += 1

    def committed(self) -> None:
        self._story.checks[VOID] += 1
        self._check_progress()
        self._check_checkpoints()

    def _check_progress(self) -> None:
        """Check that a generation's start, once known, has no other source of progress."""
        rows = self._db.execute(
            "SELECT j.id, j.attempt, p.step, a.began FROM jobs j "
            "JOIN job_progress p ON p.job_id = j.id "
            "JOIN attempts a ON a.job_id = j.id AND a.number = j.attempt WHERE a.in_place"
        )
        for job_id, attempt, step, began in rows:
            newest = self._newest.get(job_id)
            if newest is None or newest[0] != attempt or str(newest[1]) not in json.loads(began):
                continue
            if step > self._reached[job_id]:
                what = f"job {job_id} is shown at step {step}, and its ranks have come to"
                self._violated(VOID, f"{what} {self._reached[job_id]}")

    def _check_checkpoints(self) -> None:
        """Check that a new checkpoint is of its attempt's generation."""
        rows = self._db.execute(
            "SELECT c.rowid, c.job_id, c.name, a.generation FROM checkpoints c "
            "JOIN attempts a ON a.job_id = c.job_id AND a.number = c.attempt "
            "WHERE c.rowid > ? AND c.generation != a.generation",
            (self._checkpoints,),
        )
        for _, job_id, name, generation in rows.fetchall():
            self._violated(VOID, f"{name} of job {job_id} is recorded in generation {generation}")
        ((newest,),) = self._db.execute("SELECT max(rowid) FROM checkpoints").fetchall()
        self._checkpoints = newest or 0

    def ended(self) -> None:
        """Count the metric frames that were discarded, once everything is over."""
        ((count,),) = self._db.execute(
            "SELECT count(*) FROM metric_frames f JOIN attempts a "
            "ON a.job_id = f.job_id AND a.number = f.attempt WHERE f.superseded AND NOT a.revoked"
        ).fetchall()
        self._story.exercised[MEASURED_VOID] += count

    def check_curve(self, job_id: str, curve: Mapping[int, float]) -> None:
        """Check the curve of a completed job.

        A step may also be reported by ranks that continued after it.

        Args:
            curve: measured values, by step.
        """
        self._story.checks[VOID] += 1
        for step, found in curve.items():
            taken = self._taken[job_id].get(step)
            if taken is not None and found < value_of(*taken):
                what = f"step {step} of job {job_id} was taken by {taken}"
                self._violated(VOID, f"{what}, and the curve shows what {found:g} measured")


def _token(group: Group) -> _Token:
    return (group.launch.attempt, group.launch.generation)
