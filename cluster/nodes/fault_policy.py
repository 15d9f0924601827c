"""Quarantine rule: a pure function over the last attempts of a node.

A quarantined node gets no new work until a user releases it; failures before that moment do not
count again. Failures caused by the job (its code, its memory) are no evidence, and neither are
those of the network, which has two ends, nor a checkpoint that is damaged for all hosts.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from trainhall.training.link.failure import Cause

WINDOW = timedelta(hours=24)
DEVICE_FAULTS = 2
"""Within the window, of one job or several: hardware that failed twice fails again."""
FAILED_STARTS = 3
"""In a row. Of one job alone they may be the job's fault, so there have to be two."""
DEATHS = 4
"""Ends in a row of ranks that no user and no code of theirs is known to have caused."""
DEATH_JOBS = 3
"""Least number of jobs: failures only here have the node in common."""


@dataclass(frozen=True)
class Ended:
    """End of one attempt, from the view of a node that it had ranks on."""

    time: datetime
    job_id: str
    cause: Cause | None
    """None: it ended well, trained until it was asked to end, or failed elsewhere."""
    message: str = ""


class Fault(Enum):
    """Fault of the node that an end is evidence of."""

    DEVICE = "a device failed"
    START = "ranks could not be started"
    DEATH = "ranks died"


_FAULTS = {
    Cause.DEVICE_FAULT: Fault.DEVICE,
    Cause.NOT_STARTED: Fault.START,
    Cause.CRASH: Fault.DEATH,
    Cause.KILLED: Fault.DEATH,
    Cause.HANG: Fault.DEATH,
    Cause.STORAGE: Fault.DEATH,
}


_HARDWARE = re.compile(
    r"\bxid\b[\s:(]{0,5}\d{1,3}\b|uncorrectable ecc|ecc error|double-bit error|row remap"
    r"|fallen off the bus|gpu is lost|nvlink error",
    re.IGNORECASE,
)
"""Words of the driver in the message of a failure."""


def can_quarantine(cause: Cause) -> bool:
    """Return whether an end of this cause can lead to a node's quarantine.

    No other end can: it adds to no count, and time that passes only takes away from them.
    """
    return cause in _FAULTS


def is_node_fault(cause: Cause) -> bool:
    """Return whether the node is broken: no job's restart budget pays for it.

    Bounded all the same: the second such fault quarantines the node.
    """
    return _FAULTS.get(cause) is Fault.DEVICE


def quarantine_reason(
    now: datetime, ended: Iterable[Ended], *, since: datetime | None = None
) -> str | None:
    """Return the reason to quarantine a node; None: there is none.

    Args:
        ended: of this node, in any order.
        since: when a user brought the node back: only what came later counts.
    """
    begin = max(now - WINDOW, since) if since is not None else now - WINDOW
    recent = sorted((e for e in ended if begin < e.time <= now), key=lambda e: e.time)
    devices = [e for e in recent if _fault(e) is Fault.DEVICE]
    if len(devices) >= DEVICE_FAULTS:
        return _reason(f"a device failed {len(devices)} times", devices)
    starts = _newest_run(recent, Fault.START)
    if len(starts) >= FAILED_STARTS and _jobs(starts) > 1:
        return _reason(f"{len(starts)} attempts in a row could not start here", starts)
    deaths = _newest_run(recent, Fault.DEATH)
    if len(deaths) >= DEATHS and _jobs(deaths) >= DEATH_JOBS:
        summary = f"ranks of {_jobs(deaths)} jobs died here, {len(deaths)} attempts in a row"
        return _reason(summary, deaths)
    return None


def _fault(ended: Ended) -> Fault | None:
    return None if ended.cause is None else _FAULTS.get(ended.cause)


def _newest_run(recent: Sequence[Ended], fault: Fault) -> list[Ended]:
    """Return the ends of one kind since the last attempt that ended well here."""
    run: list[Ended] = []
    for each in recent:
        if each.cause is None:
            run = []
        elif _fault(each) is fault:
            run.append(each)
    return run


def _jobs(ended: Sequence[Ended]) -> int:
    return len({each.job_id for each in ended})


def _reason(summary: str, evidence: Sequence[Ended]) -> str:
    hours = WINDOW.total_seconds() / 3600
    # Everybody reads it: a message may hold anything that the job has printed.
    known = _HARDWARE.search(evidence[-1].message)
    why = f"; the last: {known.group()}" if known else ""
    return f"quarantined (unhealthy): {summary} within {hours:g} hours{why}"
