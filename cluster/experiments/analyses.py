"""Analyses and reports of experiments, computed when they are asked for."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

from trainhall.arrays import Floats, Ints
from trainhall.cluster.access.visibility import check_experiment
from trainhall.cluster.experiments.analysis.analyze import analyze
from trainhall.cluster.experiments.analysis.figures import BENCHMARK_FIGURES
from trainhall.cluster.experiments.analysis.hosts import load_hosts
from trainhall.cluster.experiments.analysis.importance import Axis
from trainhall.cluster.experiments.analysis.load import LoadedExperiment, load_rows
from trainhall.cluster.experiments.analysis.rows import FIGURES
from trainhall.cluster.experiments.analysis.views import Analysis
from trainhall.cluster.experiments.benchmark.analyze import analyze_benchmark
from trainhall.cluster.experiments.benchmark.rows import with_derived
from trainhall.cluster.experiments.report.content import Report
from trainhall.cluster.experiments.report.formats import ReportFormat
from trainhall.cluster.experiments.report.render import render
from trainhall.cluster.experiments.report.tables import to_csv
from trainhall.cluster.experiments.scaling.analyze import analyze_scaling
from trainhall.cluster.experiments.spec import SPEED_KINDS
from trainhall.cluster.service import Service, ServiceContext

_BY_KIND = {"benchmark": analyze_benchmark, "scaling": analyze_scaling}


class AnalysisService(Service):
    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        # One at a time: each is seconds of computation beside the coordinator's other work.
        self._turn = asyncio.Lock()

    async def analyze(self, experiment_id: str) -> Analysis:
        """Analyze an experiment as far as its runs have ended.

        Raises:
            NotFoundError: there is no such experiment.
        """
        return await self._compute(*await self._load(experiment_id))

    async def report(self, experiment_id: str, form: ReportFormat) -> str:
        """Return a report of an experiment, as far as its runs have ended.

        Raises:
            NotFoundError: there is no such experiment.
        """
        loaded, now = await self._load(experiment_id)
        if form is ReportFormat.CSV:
            return await asyncio.to_thread(_csv, loaded)
        hosts = await self._db.read(lambda connection: load_hosts(connection, experiment_id))
        report = Report(await self._compute(loaded, now), loaded.spec, hosts)
        return await asyncio.to_thread(render, report, form)

    async def _load(self, experiment_id: str) -> tuple[LoadedExperiment, datetime]:
        async with self._db.session() as session:
            await check_experiment(session, self._caller, experiment_id)
        now = self._clock.now()
        loaded = await self._db.read(lambda connection: load_rows(connection, experiment_id, now))
        return loaded, now

    async def _compute(self, loaded: LoadedExperiment, now: datetime) -> Analysis:
        experiment, rows = loaded.experiment, loaded.rows
        async with self._turn:
            if (analyze_kind := _BY_KIND.get(experiment.kind)) is not None:
                return await asyncio.to_thread(analyze_kind, experiment, loaded.spec, rows, now)
            return await asyncio.to_thread(analyze, experiment, rows, now, _ped_anova)


def _csv(loaded: LoadedExperiment) -> str:
    spec, rows = loaded.spec, loaded.rows
    if loaded.experiment.kind not in SPEED_KINDS:
        return to_csv(spec["space"], rows, FIGURES, loaded.experiment.rungs)
    return to_csv(spec["space"], with_derived(spec["job"], rows), BENCHMARK_FIGURES)


def _ped_anova(axes: Sequence[Axis], ranks: Ints, top: float) -> Floats:
    # Imported here for the sake of the coordinator's start: Optuna takes half a second.
    from trainhall.cluster.experiments.analysis import ped_anova

    return ped_anova.evaluate(axes, ranks, top)
