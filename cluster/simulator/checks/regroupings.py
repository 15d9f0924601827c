"""Checks of processes while their attempt goes from one generation to the next.

Hosts are checked whenever a shim takes up a launch, ranks whenever they join, and the database
after each commit that raises a generation.
"""

import functools
import json
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass

from trainhall.cluster.agent.shim.supervisor import LEAVE_SECONDS
from trainhall.cluster.lifecycle.states import NodeState
from trainhall.cluster.simulator.checks.violation import Check, Inspected
from trainhall.cluster.simulator.host import Host
from trainhall.cluster.simulator.ranks import Group, Rank
from trainhall.cluster.simulator.shim import Shim, name
from trainhall.cluster.wire.protocol import Desired
from trainhall.training.checkpoint.format.names import parse_name

STEPS = "6 steps"
MEMBERS = "one process a rank"
SURVIVORS = "survivors"
LEFT_BEHIND = "hosts left behind"

REGROUPED = f"{MEMBERS}: an attempt continued in a later generation"
SPANNED = f"{MEMBERS}: ranks of several hosts joined in a later generation"
KEPT = f"{SURVIVORS}: a process continued in a later generation"
REPLACED = f"{SURVIVORS}: a process began in a later generation"
HANDED_OVER = f"{STEPS}: a rank got the state of another"
BEGAN_FROM_SCRATCH = f"{STEPS}: no rank of a later generation had the state"
LEFT_OUT = f"{LEFT_BEHIND}: a host reported that a regrouping had left out"
EXERCISED = (REGROUPED, SPANNED, KEPT, REPLACED, HANDED_OVER, BEGAN_FROM_SCRATCH, LEFT_OUT)

_ENDS_WITHIN_SECONDS = 5.0
"""Time in which an unwanted process is asked to stop, and killed."""
_LEAVES_WITHIN_SECONDS = LEAVE_SECONDS + 5.0
"""Ranks that a later generation leaves out may wait for the others to agree on a step."""

_AttemptKey = tuple[str, int]


@dataclass(frozen=True)
class _Leaving:
    """An agent that has received a launch without ranks on its host."""

    host: Host
    agent: object
    shim: Shim
    until: float


class Regroupings(Check):
    """Check regroupings."""

    def __init__(self, inspected: Inspected, hosts: list[Host]) -> None:
        super().__init__(inspected)
        self._hosts = hosts
        self._new: list[Rank] = []
        """Processes that have begun since the last commit."""
        self._writers: set[tuple[str, int, str]] = set()
        self._reached: dict[_AttemptKey, tuple[int, int]] = {}
        """Newest generation whose ranks joined, and the newest step that they took, or began
        after. Ranks that were left out may run on."""
        self._begun_at: dict[str, int] = {}
        """Furthest step of a job from which ranks resumed by a checkpoint."""
        self._leaving: dict[tuple[str, _AttemptKey], _Leaving] = {}

    # -- what happens on hosts -------------------------------------------------------------------

    def begins(self, rank: Rank) -> None:
        """Note that a process starts."""
        self._new.append(rank)

    def _check_writers(self) -> None:
        """Check that no two processes write as one."""
        new, self._new = self._new, []
        for rank in new:
            self._story.checks[MEMBERS] += 1
            launch = rank.launch
            writer = (launch.job_id, launch.attempt, rank.spool.writer)
            if writer in self._writers:
                self._violated(MEMBERS, f"two processes write as {writer[2]} of {name(launch)}")
            self._writers.add(writer)

    def launched(self, shim: Shim, kept: Mapping[tuple[str, int], int]) -> None:
        """Check a launch that a shim has taken up.

        Args:
            kept: the pids of the processes that ran before, by device.
        """
        launch = shim.launch
        self._story.checks[SURVIVORS] += 1
        for device, pid in shim.pids.items():
            before = kept.get(device)
            self._story.exercised[KEPT] += before == pid
            self._story.exercised[REPLACED] += launch.generation > 1 and before is None
            if before not in (None, pid):
                where = f"device {device[1]} of {shim.machine.name}"
                what = f"process {before} on {where} was alive, and {name(launch)} began another"
                self._violated(SURVIVORS, what)
        self._check_members(shim)
        self._check_writers()

    def _check_members(self, shim: Shim) -> None:
        """Check that in one generation no two processes share a rank number."""
        self._story.checks[MEMBERS] += 1
        token = _token(shim)
        numbers = Counter(
            slot.rank
            for host in self._hosts
            for other in host.shims()
            if _token(other) == token
            for slot in other.launch.ranks
        )
        for number, count in numbers.items():
            if count > 1:
                self._violated(
                    MEMBERS, f"{count} processes are rank {number} of {name(shim.launch)}"
                )

    def sent_away(self, shim: Shim, rank: Rank) -> None:
        """Record that a process was asked to end."""
        launch = shim.launch
        self._story.checks[SURVIVORS] += 1
        row = self._db.execute(
            "SELECT allocation FROM attempts WHERE job_id = ? AND number = ? AND generation = ? "
            "AND goal = 'run' AND NOT revoked AND state IN ('starting', 'running')",
            (launch.job_id, launch.attempt, launch.generation),
        ).fetchone()
        if row is None or shim.isolated or shim.has_completed:
            return
        if (shim.machine.node_id, rank.device[1]) in devices_of(row[0]):
            what = f"process {rank.pid} on device {rank.device[1]} of {shim.machine.name}"
            self._violated(SURVIVORS, f"{what} was stopped, and {name(launch)} continues with it")

    # -- what ranks do ---------------------------------------------------------------------------

    def joined(self, group: Group) -> None:
        """Record the step from which the ranks of a generation continue."""
        launch = group.launch
        self._story.checks[STEPS] += 1
        self._story.checks[MEMBERS] += 1
        pids = {(rank.shim, rank.pid) for rank in group.ranks.values() if rank.alive}
        if len(pids) != launch.world_size or set(group.ranks) != set(range(launch.world_size)):
            self._violated(MEMBERS, f"{name(launch)} joined as {sorted(group.ranks)}")
        key = (launch.job_id, launch.attempt)
        exercised = self._story.exercised
        if launch.generation > 1:
            exercised[REGROUPED] += 1
            exercised[SPANNED] += launch.num_nodes > 1
            exercised[BEGAN_FROM_SCRATCH if group.is_fresh else HANDED_OVER] += 1
        newest, reached = self._reached.get(key, (1, 0))
        if launch.generation < newest:
            return  # left out, and they do not know it
        if group.is_fresh:
            saved, earlier = self._saved(group), self._begun_at.get(launch.job_id, 0)
            what = f"{name(launch)} resumes from step {group.step}"
            if group.step < saved:
                self._violated(STEPS, f"{what}, and step {saved} was saved when it was begun")
            if group.step < earlier:
                self._violated(STEPS, f"{what}, and resumed from step {earlier} before")
            self._begun_at[launch.job_id] = max(group.step, earlier)
        elif group.step < reached:
            self._violated(STEPS, f"{name(launch)} resumes after {group.step} of {reached} steps")
        self._reached[key] = launch.generation, group.step

    def stepped(self, group: Group) -> None:
        launch = group.launch
        key = (launch.job_id, launch.attempt)
        if launch.generation == self._reached[key][0]:
            self._reached[key] = launch.generation, group.step

    def _saved(self, group: Group) -> int:
        """Return the best checkpoint known when this generation was decided."""
        launch = group.launch
        row = self._db.execute(
            "SELECT checkpoint_plan FROM attempts WHERE job_id = ? AND number = ? "
            "AND generation = ? AND NOT revoked",
            (launch.job_id, launch.attempt, launch.generation),
        ).fetchone()
        names = json.loads(row[0])["resume"] if row is not None else []
        there = group.storage.committed.get(launch.job_id, {})
        found = (parse_name(each) for each in names)
        return max((each.step for each in found if each in there and each), default=0)

    # -- what the coordinator decides ------------------------------------------------------------

    def regrouped(
        self, key: _AttemptKey, before: Set[tuple[str, int]], after: Set[tuple[str, int]]
    ) -> None:
        """Check an attempt that continues with other devices.

        Some of the ranks with the state must stay, unless there is no report yet that those
        have failed.
        """
        self._story.checks[STEPS] += 1
        have = self._devices_with_state(key) & before
        ended, failed = self._reported(key)
        survivors = {device for device in before & after if device[0] not in ended} - failed
        if have and not survivors:
            what = f"attempt {key} has its state at {sorted(have)}"
            self._violated(STEPS, f"{what}, and continues at {sorted(after)}")

    def _devices_with_state(self, key: _AttemptKey) -> set[tuple[str, int]]:
        """Return the devices of live ranks that have taken a step, on nodes that can be reached."""
        there = {
            node_id
            for node_id, state in self._db.execute("SELECT id, state FROM nodes").fetchall()
            if state not in (NodeState.LOST, NodeState.PENDING)
        }
        return {
            (host.node_id, rank.device[1])
            for host in self._hosts
            if host.node_id in there
            for shim in host.shims()
            if shim.alive and (shim.launch.job_id, shim.launch.attempt) == key
            for rank in shim.running
            if rank.step
        }

    def _reported(self, key: _AttemptKey) -> tuple[set[str], set[tuple[str, int]]]:
        """Return the nodes whose ranks have ended, and the devices whose rank has failed."""
        (text,) = self._db.execute(
            "SELECT node_outcomes FROM attempts WHERE job_id = ? AND number = ?", key
        ).fetchone()
        outcomes = json.loads(text)
        ended = {node_id for node_id, each in outcomes.items() if each.get("outcome")}
        failed = {
            (node_id, rank["device_index"])
            for node_id, each in outcomes.items()
            for rank in each.get("failed_ranks", ())
        }
        return ended, failed

    # -- hosts that were left behind -------------------------------------------------------------

    def agent_takes(self, host: Host, desired: Desired) -> None:
        """Record the desired state that a reporting host receives."""
        ranks = {(a.launch.job_id, a.launch.attempt): a.launch.ranks for a in desired.assignments}
        for shim in host.shims():
            key = (shim.launch.job_id, shim.launch.attempt)
            entry = (host.name, key)
            if ranks.get(key) or not shim.running:
                self._leaving.pop(entry, None)
            elif entry not in self._leaving or self._leaving[entry].agent is not host.agent:
                self._story.exercised[LEFT_OUT] += 1
                within = _LEAVES_WITHIN_SECONDS if key in ranks else _ENDS_WITHIN_SECONDS
                self._leaving[entry] = _Leaving(host, host.agent, shim, self._now() + within)

    def committed(self) -> None:
        """Check the regroupings after some time has passed."""
        self._check_writers()
        for entry, leaving in list(self._leaving.items()):
            if leaving.host.agent is not leaving.agent or not leaving.shim.running:
                del self._leaving[entry]
            elif self._now() > leaving.until:
                what = f"{name(leaving.shim.launch)} still runs on {leaving.host.name}"
                self._violated(LEFT_BEHIND, f"{what}, which was to leave")
                del self._leaving[entry]
        self._story.checks[LEFT_BEHIND] += 1

    # --------------------------------------------------------------------------------------------


def _token(shim: Shim) -> tuple[str, int, int]:
    return (shim.launch.job_id, shim.launch.attempt, shim.launch.generation)


@functools.lru_cache(maxsize=1000)  # most rows say what they said after the commit before
def devices_of(allocation: str) -> frozenset[tuple[str, int]]:
    """Return the devices of an attempt's allocation by node id and index."""
    return frozenset(
        (host["node_id"], rank["device_index"])
        for host in json.loads(allocation)
        for rank in host["ranks"]
    )
