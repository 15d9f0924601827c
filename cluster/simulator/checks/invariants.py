"""The invariants of the design, by their numbers, which hold at every moment, whatever fails.

The database is checked after every commit, the hosts whenever ranks are launched. Properties that
only time can show (an end that has to come) are checked when the faults are over.
"""

import functools
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainhall.cluster.lifecycle.states import (
    ACTIVE_ATTEMPT_STATES,
    ACTIVE_STATES,
    ATTEMPT_EDGES,
    FINAL_STATES,
    JOB_EDGES,
    AttemptState,
    JobState,
    NodeState,
)
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.simulator.checks import lineages, pauses, preemption, regroupings
from trainhall.cluster.simulator.checks.lineages import Lineages
from trainhall.cluster.simulator.checks.pauses import Pauses
from trainhall.cluster.simulator.checks.preemption import PreemptionChecks
from trainhall.cluster.simulator.checks.regroupings import Regroupings, devices_of
from trainhall.cluster.simulator.checks.violation import Check, Inspected
from trainhall.cluster.simulator.host import Host
from trainhall.cluster.simulator.shim import Shim, name
from trainhall.cluster.simulator.story import Story
from trainhall.monitoring.codec import decode_frames
from trainhall.training.link.launch import Launch

TRANSITIONS = "1 transitions"
SUBMISSIONS = "2 submissions"
LAUNCHES = "2 launches"
REVOKED = "3 revoked tokens"
ISOLATED = "4 isolated attempts"
GRACE = "5 grace period"
ONCE = "8 counted once"
DEVICES = "devices"
DRAINED = "drained nodes"
QUOTAS = "quotas"
LIVENESS = "liveness"

_SLACK_SECONDS = 1e-6

# What has to happen for an invariant to be put to the test, as "invariant: what happened".
EDGE_TAKEN = f"{TRANSITIONS}: a job or an attempt changed its state"
ASKED_AGAIN = f"{SUBMISSIONS}: a submission without an answer was sent again"
SURVIVED = f"{SUBMISSIONS}: a coordinator began with an unfinished job"
LAUNCHED_AGAIN = f"{LAUNCHES}: an agent was sent an attempt that another had launched"
REVOKED_REPORTED = f"{REVOKED}: a revoked attempt reported something"
RAN_BESIDE = f"{ISOLATED}: ranks were launched while a replaced attempt ran"
ENDED_ALONE = f"{ISOLATED}: a shim without acknowledgements ended its ranks (on_isolation: stop)"
ENDED_LATE = f"{ISOLATED}: ranks of a replaced attempt ended"
NODE_LOST = f"{GRACE}: a node was lost"
BEGAN_AMONG_NODES = f"{GRACE}: a coordinator began with nodes"
SENT_AGAIN = f"{ONCE}: what had been sent before was sent again"
TAKEN_OVER = f"{DEVICES}: a device went from one attempt to another"
DRAINED_NODE = f"{DRAINED}: a node was drained"
AT_QUOTA = f"{QUOTAS}: a user held all that they may"
EXERCISED = (
    EDGE_TAKEN, ASKED_AGAIN, SURVIVED, LAUNCHED_AGAIN, REVOKED_REPORTED, RAN_BESIDE, ENDED_ALONE,
    ENDED_LATE, NODE_LOST, BEGAN_AMONG_NODES, SENT_AGAIN, TAKEN_OVER, DRAINED_NODE,
    AT_QUOTA, *lineages.EXERCISED, *regroupings.EXERCISED, *preemption.EXERCISED, *pauses.EXERCISED,
)  # fmt: skip

_AttemptKey = tuple[str, int]

Measured = tuple[list[int], int]
"""The steps that a writer measured, and how many the coordinator acknowledged of them. A host that
loses its power may lose the others."""


@functools.lru_cache(maxsize=1000)
def _held(grants: str) -> frozenset[str]:
    return frozenset(json.loads(grants))


@dataclass(frozen=True)
class _Fixed:
    """Values that a revoked token may not change any more."""

    state: str
    goal: str
    failure: str | None
    rendezvous: str | None
    checkpoints: int


class Inspector(Check):
    """
    Args:
        connection: the coordinator's database.
        hosts: of the cluster, filled as they are made.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        hosts: list[Host],
        options: ClusterOptions,
        story: Story,
        now: Callable[[], float],
    ) -> None:
        self.inspected = inspected = Inspected(connection, story, now)
        super().__init__(inspected)
        self._hosts = hosts
        self._options = options
        self._devices: dict[tuple[str, int], _AttemptKey] = {}
        """Attempt whose ranks were launched last on a device."""
        self.acknowledged: dict[str, str] = {}
        """Jobs whose submission was answered, by idempotency key."""
        self.listening_since = 0.0
        """When the present coordinator began (virtual seconds)."""
        self.reported_at: dict[str, float] = {}
        """When the coordinator last took a node's report, by node id."""
        self.regroupings = Regroupings(inspected, hosts)
        self.lineages = Lineages(inspected)
        self.preemption = PreemptionChecks(inspected)
        self.pauses = Pauses(inspected)
        self._jobs: dict[str, str] = {}
        self._attempts: dict[_AttemptKey, str] = {}
        self._generations: dict[_AttemptKey, tuple[int, frozenset[tuple[str, int]]]] = {}
        """The newest of each attempt, and its devices by node id and index."""
        self._revoked: dict[_AttemptKey, _Fixed] = {}
        self._nodes: dict[str, str] = {}
        self._events: dict[str, int] = {}
        self._launches: Counter[tuple[str, str, int, int]] = Counter()

    def receives(self, node_id: str) -> None:
        """Check a node's message that arrives at the coordinator."""
        self.reported_at[node_id] = self._now()

    # -- after every commit ----------------------------------------------------------------------

    def committed(self) -> None:
        self._story.events += 1
        self._check_jobs()
        self._check_attempts()
        self._check_nodes()
        self.regroupings.committed()
        self.lineages.committed()
        self.preemption.committed(self._jobs)

    def _check_jobs(self) -> None:
        self._story.checks[TRANSITIONS] += 1
        self._story.checks[SUBMISSIONS] += 1
        rows = self._db.execute("SELECT id, state, reason FROM jobs").fetchall()
        now = {job_id: state for job_id, state, _ in rows}
        for job_id, state, reason in rows:
            if not reason:
                self._violated(TRANSITIONS, f"job {job_id} is {state} without a reason")
            if self._jobs.get(job_id) != state:
                self._check_path(job_id, state)
        for key, job_id in self.acknowledged.items():
            if job_id not in now:
                self._violated(SUBMISSIONS, f"job {job_id}, acknowledged to {key}, is gone")
        self._jobs = now

    def _check_path(self, job_id: str, state: str) -> None:
        """Check that the job's events name each edge that it took, and its present state."""
        at = self._jobs.get(job_id)
        rows = self._db.execute(
            "SELECT seq, data FROM events WHERE job_id = ? AND kind = 'state' AND seq > ? "
            "ORDER BY seq",
            (job_id, self._events.get(job_id, 0)),
        )
        for seq, data in rows:
            self._story.exercised[EDGE_TAKEN] += 1
            end = json.loads(data)["state"]
            if at is not None and (JobState(at), JobState(end)) not in JOB_EDGES:
                self._violated(TRANSITIONS, f"job {job_id} went from {at} to {end}")
            self._story.log("job", f"{job_id} {at or '·'} → {end}")
            at, self._events[job_id] = end, seq
        if at != state:
            self._violated(TRANSITIONS, f"job {job_id} is {state}, its events end at {at}")

    def _check_attempts(self) -> None:
        self._story.checks[REVOKED] += 1
        self._story.checks[DEVICES] += 1
        rows = self._db.execute(
            "SELECT a.job_id, a.number, a.state, a.goal, a.failure, a.rendezvous, "
            "a.revoked, a.allocation, a.generation, j.attempt, j.generation, "
            "json_extract(j.spec, '$.user'), "
            "(SELECT count(*) FROM checkpoints c WHERE c.job_id = a.job_id "
            " AND c.attempt = a.number), "
            "(SELECT json_group_array(g.node_id || ' ' || g.device_index) FROM grants g "
            " WHERE g.job_id = a.job_id AND g.attempt = a.number) "
            "FROM attempts a JOIN jobs j ON j.id = a.job_id"
        )
        active: Counter[str] = Counter()
        held: Counter[str | None] = Counter()
        for (
            job_id, number, state, goal, failure, rendezvous, revoked, allocation, generation,
            newest, newest_generation, user, checkpoints, grants,
        ) in rows:  # fmt: skip
            key = (job_id, number)
            placed = devices_of(allocation)
            self._check_edge(key, state)
            self._check_generation(key, generation, placed)
            if revoked:
                fixed = _Fixed(state, goal, failure, rendezvous, checkpoints)
                known = self._revoked.setdefault(key, fixed)
                if known != fixed:
                    self._violated(REVOKED, f"attempt {key} was {known}, and is {fixed}")
            elif state in ACTIVE_ATTEMPT_STATES:
                active[job_id] += 1
                if (number, generation) != (newest, newest_generation):
                    self._violated(
                        DEVICES,
                        f"attempt {key} is {state} in generation {generation}; the newest is "
                        f"{newest} in {newest_generation}",
                    )
                needed = {f"{node_id} {index}" for node_id, index in placed}
                held[user] += len(needed)
                # After a regrouping it also holds what its processes have yet to leave.
                if missing := needed - _held(grants):
                    self._violated(DEVICES, f"attempt {key} is {state} without {sorted(missing)}")
        self._check_quotas(held)
        for job_id, state in self._jobs.items():
            if active[job_id] != (1 if state in ACTIVE_STATES else 0):
                self._violated(
                    TRANSITIONS, f"job {job_id} is {state} with {active[job_id]} active attempts"
                )

    def _check_edge(self, key: _AttemptKey, state: str) -> None:
        before = self._attempts.get(key, state)
        if before != state:
            if (AttemptState(before), AttemptState(state)) not in ATTEMPT_EDGES:
                self._violated(TRANSITIONS, f"attempt {key} went from {before} to {state}")
            self._story.exercised[EDGE_TAKEN] += 1
        self._attempts[key] = state

    def _check_generation(
        self, key: _AttemptKey, generation: int, placed: frozenset[tuple[str, int]]
    ) -> None:
        newest, before = self._generations.get(key, (1, placed))
        if generation < newest:
            self._violated(DEVICES, f"attempt {key} went back to generation {generation}")
        if generation > newest:
            self.regroupings.regrouped(key, before, placed)
        self._generations[key] = (generation, placed)

    def _check_quotas(self, held: Counter[str | None]) -> None:
        """Check quotas; `held`: devices of active attempts, by their jobs' user."""
        for user, most in self._options.quotas.users.items():
            self._story.checks[QUOTAS] += 1
            self._story.exercised[AT_QUOTA] += held[user] == most
            if held[user] > most:
                self._violated(
                    QUOTAS, f"user {user} may hold {most} devices, and holds {held[user]}"
                )

    def _check_nodes(self) -> None:
        """Check that a node is lost only after it, and this coordinator, were there long enough."""
        self._story.checks[GRACE] += 1
        now = {}
        for node_id, state in self._db.execute("SELECT id, state FROM nodes").fetchall():
            now[node_id] = state
            before = self._nodes.get(node_id)
            if state == before:
                continue
            self._story.log("node", f"{node_id} {before or '·'} → {state}")
            if state == NodeState.DRAINED:
                self._story.exercised[DRAINED_NODE] += 1
            if state == NodeState.LOST:
                self._story.exercised[NODE_LOST] += 1
                since = max(self.reported_at.get(node_id, 0.0), self.listening_since)
                idle_seconds = self._now() - since
                if idle_seconds < self._options.lost_after_seconds - _SLACK_SECONDS:
                    self._violated(
                        GRACE, f"node {node_id} was lost {idle_seconds:.1f} s after its last report"
                    )
        self._nodes = now
        self._story.checks[DRAINED] += 1
        held = self._db.execute(
            "SELECT n.id, g.job_id FROM nodes n JOIN grants g ON g.node_id = n.id "
            "WHERE n.state = ?",
            (NodeState.DRAINED.value,),
        )
        for node_id, job_id in held.fetchall():
            self._violated(DRAINED, f"node {node_id} is drained and job {job_id} holds a device")

    # -- when ranks are launched -----------------------------------------------------------------

    def launched(self, shim: Shim, kept: Mapping[tuple[str, int], int]) -> None:
        """Check a launch that a shim has taken up, with running processes.

        Args:
            kept: the pids of those that ran before, by device.
        """
        self._story.checks[LAUNCHES] += 1
        launch, host = shim.launch, shim.machine
        key = (host.name, launch.job_id, launch.attempt, launch.generation)
        self._launches[key] += 1
        if self._launches[key] > 1:
            self._violated(LAUNCHES, f"{key} was launched {self._launches[key]} times")
        self.regroupings.launched(shim, kept)
        devices = Counter(rank.device[1] for other in host.shims() for rank in other.running)
        for slot in launch.ranks:
            device, attempt = (host.name, slot.device_index), (launch.job_id, launch.attempt)
            self._story.exercised[TAKEN_OVER] += self._devices.get(device, attempt) != attempt
            self._devices[device] = attempt
            if devices[slot.device_index] > 1:
                self._violated(
                    DEVICES, f"two processes on device {slot.device_index} of {host.name}"
                )
        for other in self._hosts:
            for older in other.shims():
                if not older.running or older.launch.job_id != launch.job_id:
                    continue
                if older.launch.attempt < launch.attempt:
                    self._check_void(older.launch, other)
                    if older.launch.isolation_seconds is not None:
                        what = f"attempt {older.launch.attempt} still runs on {other.name}"
                        self._violated(ISOLATED, f"{what}, and its job says on_isolation: stop")

    def _check_void(self, older: Launch, host: Host) -> None:
        """Check the launches beside a newer attempt.

        Only a revoked attempt may run there, or ranks of a generation that it has left, on an
        unreachable host: their reports and saves are refused.
        """
        key = (older.job_id, older.attempt)
        self._story.checks[ISOLATED] += 1
        self._story.exercised[RAN_BESIDE] += 1
        row = self._db.execute(
            "SELECT revoked, generation FROM attempts WHERE job_id = ? AND number = ?", key
        ).fetchone()
        if row is None or not (row[0] or row[1] > older.generation):
            self._violated(
                ISOLATED, f"attempt {key} still runs on {host.name} and is not superseded"
            )

    # -- what puts an invariant to the test ------------------------------------------------------

    def began(self) -> None:
        """Note that a coordinator started."""
        self.listening_since = self._now()
        ((nodes,),) = self._db.execute("SELECT count(*) FROM nodes").fetchall()
        self._story.exercised[BEGAN_AMONG_NODES] += nodes > 0
        states = self._db.execute("SELECT state FROM jobs").fetchall()
        self._story.exercised[SURVIVED] += any(state not in FINAL_STATES for (state,) in states)

    def reported(self, job_id: str, attempt: int) -> None:
        """Record that the coordinator accepts a report of an attempt."""
        self._story.exercised[REVOKED_REPORTED] += (job_id, attempt) in self._revoked

    def ended(self, job_id: str, attempt: int, isolated: bool) -> None:
        """Note that the ranks of an attempt ended on some host."""
        self._story.exercised[ENDED_ALONE] += isolated
        self._story.exercised[ENDED_LATE] += (job_id, attempt) in self._revoked

    # -- when the faults are over ----------------------------------------------------------------

    def unfinished_jobs(self) -> list[str]:
        """Return jobs that are not over yet, in words."""
        rows = self._db.execute("SELECT id, state, reason FROM jobs").fetchall()
        return [
            f"job {job_id} is {state}: {reason}"
            for job_id, state, reason in rows
            if state not in FINAL_STATES
        ]

    def unfinished(self) -> list[str]:
        """Return descriptions of everything that is not over yet."""
        found = self.unfinished_jobs()
        for host in self._hosts:
            found += [f"{name(s.launch)} runs on {host.name}" for s in host.shims() if s.running]
            if host.disk.folders:
                found.append(f"{host.name} has not forgotten {sorted(host.disk.folders)}")
        grants = self._db.execute("SELECT job_id, attempt, node_id FROM grants").fetchall()
        return found + [f"attempt {a} of job {j} holds a device of node {n}" for j, a, n in grants]

    def check_end(self, measured: dict[tuple[str, int, str], Measured]) -> None:
        """Check the end; `measured`: steps per writer, by job, attempt and writer."""
        self._story.checks[LIVENESS] += 1
        for what in self.unfinished():
            self._violated(LIVENESS, f"{what}, long after the last fault")
        keys = self._db.execute("SELECT key, job_id FROM idempotency_keys").fetchall()
        jobs = self._db.execute("SELECT count(*) FROM jobs").fetchone()[0]
        if len(keys) != jobs or dict(keys) != dict(keys) | self.acknowledged:
            self._violated(SUBMISSIONS, f"{jobs} jobs for the keys {dict(keys)}")
        self._check_counted_once(measured)
        self.lineages.ended()
        self.pauses.ended()

    def _check_counted_once(self, measured: dict[tuple[str, int, str], Measured]) -> None:
        """Check that measurements are stored once, and no acknowledged one is missing."""
        self._story.checks[ONCE] += 1
        stored: Counter[tuple[str, int, int]] = Counter()
        rows = self._db.execute("SELECT job_id, attempt, payload FROM metric_frames")
        for job_id, attempt, payload in rows:
            for table in decode_frames(payload):
                stored.update((job_id, attempt, int(step)) for step in table.steps)
        acknowledged: Counter[tuple[str, int, int]] = Counter()
        written: Counter[tuple[str, int, int]] = Counter()
        for (job_id, attempt, _), (steps, count) in measured.items():
            written.update((job_id, attempt, step) for step in steps)
            acknowledged.update((job_id, attempt, step) for step in steps[:count])
        if not acknowledged <= stored <= written:
            doubled = sorted((stored - written).items())[:3]
            missing = sorted((acknowledged - stored).items())[:3]
            self._violated(ONCE, f"too often {doubled}, missing {missing}")

    def check_curve(
        self,
        job_id: str,
        steps: list[int],
        values: list[float],
        measured: dict[tuple[str, int, str], Measured],
    ) -> None:
        """Check that a completed job's curve has every step once, over all attempts and
        generations, as measured by those who took it, except what a host lost with its disk.

        Args:
            steps, values: of the curve.
            measured: as for `check_end`.
        """
        self._story.checks[regroupings.STEPS] += 1
        (total,) = self._db.execute(
            "SELECT json_extract(spec, '$.training.steps') FROM jobs WHERE id = ?", (job_id,)
        ).fetchone()
        excused: set[int] = set()
        for (other, _, _), (written, count) in measured.items():
            excused.update(written[count:] if other == job_id else ())
        every = set(range(1, total + 1))
        missing = every - set(steps) - excused
        if missing or not every.issuperset(steps) or len(set(steps)) < len(steps):
            what = f"the curve of job {job_id} has {steps} of {total} steps"
            self._violated(regroupings.STEPS, what)
        curve = dict(zip(steps, values, strict=True))
        self.lineages.check_curve(job_id, {s: v for s, v in curve.items() if s not in excused})
