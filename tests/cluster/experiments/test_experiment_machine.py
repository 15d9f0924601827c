"""Whatever ends, pauses, resumes, cancels or kills in whatever order: no trial is started twice,
none is lost, and every experiment ends once its jobs do."""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
)
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from support.cluster.machine import ClusterMachine, run_machine
from support.cluster.simulated import failure
from support.database import open_database
from support.storage.frames import frame, table

from trainhall.cluster.errors import WrongStateError
from trainhall.cluster.experiments.spec import validate_experiment
from trainhall.cluster.lifecycle.states import FINAL_STATES
from trainhall.db.experiments import Trial
from trainhall.db.models import Job
from trainhall.training.link.status import Outcome

PARALLEL = 2
RUNS = 4
JOB = {"name": "x", "task": {"name": "synthetic"}, "recovery": {"max_restarts": 0}}
FINAL = {"completed", "failed", "cancelled", "stopped"}


class KilledError(Exception):
    """The coordinator was killed here."""


class Machine(ClusterMachine):
    @initialize(slots=st.integers(1, 3))
    def start(self, slots: int) -> None:
        self.start_cluster()
        self.run(self.cluster.add_node("alpha", slots))
        self.experiments: list[str] = []
        self.final: dict[str, str] = {}
        self.resumed = 0
        """Jobs that a user resumed: a waiting run holds a place again by it."""
        self.create("grid", stops_early=False)

    @precondition(lambda self: len(self.experiments) < 2)
    @rule(method=st.sampled_from(["grid", "tpe"]), stops_early=st.booleans())
    def create(self, method: str, stops_early: bool) -> None:
        document = {
            "name": "sweep", "kind": "sweep", "method": method, "parallel": PARALLEL,
            "job": JOB,
            "space": {"training.steps": [10, 20]}, "repeats": RUNS // 2,
            "objective": {"metric": "loss"}, "trials": 2,
        }  # fmt: skip
        if stops_early:
            document["space"] = {"training.learning_rate": [0.1, 0.2, 0.3, 0.4]}
            document |= {"repeats": 1, "trials": RUNS}
            document["early_stopping"] = {"asha": {"min_steps": 10, "max_steps": 30, "factor": 2}}
        spec = validate_experiment(document)
        view, _ = self.run(self.cluster.coordinator.experiments.create(spec))
        self.experiments.append(view.id)

    @rule(number=st.integers(0, 1), command=st.sampled_from(["pause", "resume", "cancel"]))
    def command_experiment(self, number: int, command: str) -> None:
        experiment = self.experiments[number % len(self.experiments)]
        self.run(self._commanded(self.cluster.coordinator.experiments, command, experiment))

    @rule(number=st.integers(0, 9), command=st.sampled_from(["pause", "resume", "cancel"]))
    def command_job(self, number: int, command: str) -> None:
        jobs = [job for job in self.run(self._jobs()) if job.state not in FINAL_STATES]
        if jobs:
            job = jobs[number % len(jobs)]
            self.resumed += command == "resume" and job.state == "paused"
            self.run(self._commanded(self.cluster.coordinator.jobs, command, job.id))

    async def _commanded(self, service: Any, command: str, identity: str) -> None:
        try:
            await getattr(service, command)(identity)
        except WrongStateError:
            return

    @rule(failed=st.booleans(), number=st.integers(0, 9))
    def end_job(self, failed: bool, number: int) -> None:
        jobs = [job for job in self.run(self._jobs()) if job.state == "running"]
        if jobs:
            outcome, why = (Outcome.FAILED, failure()) if failed else (Outcome.COMPLETED, None)
            self.run(self.cluster.finish(jobs[number % len(jobs)].id, outcome, why))

    @rule(number=st.integers(0, 9))
    def reach_rung(self, number: int) -> None:
        jobs = [job for job in self.run(self._jobs()) if job.state == "running"]
        if jobs:
            self.run(self._reach_rung(jobs[number % len(jobs)]))

    async def _reach_rung(self, job: Job) -> None:
        """Let a job pause at its next rung; without one, let it complete."""
        left = [at for at in job.spec["training"]["pause_at"] if at > job.pauses_after]
        step = left[0] if left else job.spec["training"]["steps"]
        body = frame(1, table([step], loss=[job.number / 10]))
        writer = f"{job.attempt}-aaaaaaaa"
        await self.cluster.coordinator.ingest.metrics(job.id, job.attempt, writer, body)
        await self.cluster.finish(job.id, Outcome.PAUSED if left else Outcome.COMPLETED)

    @rule(steps=st.integers(1, 3))
    def work(self, steps: int) -> None:
        self.run(self.cluster.work(steps))

    @rule(transactions=st.integers(1, 6), committed=st.booleans())
    def kill_coordinator(self, transactions: int, committed: bool) -> None:
        """It is killed in one of its next transactions, just before or after the commit."""

        async def act() -> None:
            transaction, left = self.db.transaction, transactions

            @contextlib.asynccontextmanager
            async def dying() -> AsyncIterator[AsyncSession]:
                nonlocal left
                left -= 1
                async with transaction() as session:
                    yield session
                    if left == 0 and not committed:
                        raise KilledError
                if left == 0:
                    raise KilledError

            with patch.object(self.db, "transaction", dying), contextlib.suppress(KilledError):
                await self.cluster.coordinator.reconciler.settle()
            await self.cluster.stop_coordinator()
            self.cluster.start_coordinator()
            for node in self.cluster.nodes.values():
                await self.cluster.connect(node, new_agent=False)

        self.run(act())

    async def _jobs(self) -> list[Job]:
        async with self.db.session() as session:
            return list(await session.scalars(select(Job).order_by(Job.number)))

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "cluster"):
            return
        self.run(self.cluster.check())
        self.run(self._check())

    async def _check(self) -> None:
        jobs = {job.id: job for job in await self._jobs()}
        async with self.db.session() as session:
            trials = (await session.scalars(select(Trial))).all()
        # Every job is that of one trial, and each trial has one job at most.
        assert Counter(t.job_id for t in trials if t.job_id) == Counter(list(jobs))
        places = {(j.experiment_id, j.trial, j.repeat) for j in jobs.values()}
        assert len(places) == len(jobs)
        for trial in trials:
            job = jobs.get(trial.job_id or "")
            assert (job is None) == (trial.state == "pending" or trial.job_id is None)
            if job is not None:
                place = (trial.experiment_id, trial.number, trial.repeat)
                assert (job.experiment_id, job.trial, job.repeat) == place
                assert trial.state in ("started", "waiting", "stopped", job.state)
        for experiment in self.experiments:
            own = [t for t in trials if t.experiment_id == experiment]
            # Trials of TPE get a row when they are chosen.
            assert len(own) <= RUNS
            assert sum(t.state == "started" for t in own) <= PARALLEL + self.resumed
            for trial in own:
                await self._check_promotions(trial)
            view = await self.cluster.coordinator.experiments.get(experiment)
            if view.state in FINAL:
                assert self.final.setdefault(experiment, view.state) == view.state
            assert experiment not in self.final or view.state == self.final[experiment]
            assert sum(view.counts.values()) == RUNS or view.state == "cancelled"
            if view.finished_at is not None:
                # One that was cancelled before a trial was chosen has none.
                assert all(t.command is None for t in own)
                assert {t.state for t in own} <= FINAL

    async def _check_promotions(self, trial: Trial) -> None:
        if trial.job_id is None or not trial.results:
            return
        events = (await self.cluster.coordinator.jobs.events(trial.job_id, limit=1000)).items
        promoted = [event.reason for event in events if event.code == "promoted"]
        assert len(set(promoted)) == len(promoted) <= len(trial.results)

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            try:
                self.run(self._everything_can_end())
            finally:
                self.run(self.cluster.close())

    async def _everything_can_end(self) -> None:
        experiments, jobs = self.cluster.coordinator.experiments, self.cluster.coordinator.jobs
        for _ in range(80):
            await self.cluster.heartbeat(5)
            await self.cluster.work(2)
            views = [await experiments.get(each) for each in self.experiments]
            await self._check()
            if all(view.finished_at is not None for view in views):
                return
            for view in views:
                if view.state == "paused":
                    await experiments.resume(view.id)
            async with self.db.session() as session:
                waiting = set(
                    await session.scalars(select(Trial.job_id).where(Trial.state == "waiting"))
                )
            for job in await self._jobs():
                if job.state == "paused" and job.id not in waiting:
                    await self._commanded(jobs, "resume", job.id)
                elif job.state == "running":
                    await self._reach_rung(job)
        raise AssertionError(f"these do not end: {[(v.state, v.counts) for v in views]}")


def test_experiments_keep_their_invariants(database_url: str, tmp_path: Path) -> None:
    run_machine(Machine, open_database(database_url), tmp_path, examples=9, steps=12)
