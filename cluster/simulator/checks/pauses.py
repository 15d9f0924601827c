"""Pauses of `training.pause_at`: each once, and no step after it before a user has resumed."""

from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode
from trainhall.cluster.simulator.checks.violation import Check
from trainhall.cluster.simulator.ranks import Group

PAUSES = "pauses"

PAUSED = f"{PAUSES}: a job paused by itself"
EXERCISED = (PAUSED,)


class Pauses(Check):
    """Check that jobs pause by themselves where their specs say so."""

    def stepped(self, group: Group) -> None:
        launch, before = group.launch, group.step - 1
        self._story.checks[PAUSES] += 1
        if launch.pauses_at(before):
            what = f"job {launch.job_id} took step {group.step}, and did not pause after {before}"
            self._violated(PAUSES, what)

    def joined(self, group: Group) -> None:
        """Check that ranks which pause at once follow others that had not come to report it."""
        launch = group.launch
        if not launch.pauses_at(group.step):
            return
        self._story.checks[PAUSES] += 1
        reason = Reason.of(ReasonCode.PAUSED_AT_STEP, step=group.step)
        known = self._db.execute(
            "SELECT 1 FROM events WHERE job_id = ? AND kind = 'state' AND reason = ?",
            (launch.job_id, reason.text),
        )
        if known.fetchone() is not None:
            what = f"job {launch.job_id} was resumed from step {group.step}"
            self._violated(PAUSES, f"{what}, and pauses there again")

    def ended(self) -> None:
        """Count the pauses, once everything is over."""
        rows = self._db.execute(
            "SELECT count(*) FROM events WHERE kind = 'state' AND code = ?",
            (ReasonCode.PAUSED_AT_STEP.value,),
        )
        ((count,),) = rows.fetchall()
        self._story.exercised[PAUSED] += count
