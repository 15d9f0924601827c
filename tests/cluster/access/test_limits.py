"""Limits of projects: what members may ask for."""

from types import MappingProxyType
from typing import Any

import pytest
from support.cluster.simulated import SimulatedCluster, spec
from support.experiments import SWEEP

from trainhall.cluster.access.limits import LIMITS_OF_NEW, ProjectLimits, check_limits
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import Role
from trainhall.cluster.errors import ConflictError, InvalidValueError
from trainhall.cluster.experiments.spec import validate_experiment
from trainhall.db.accounts import Project
from trainhall.training.spec.parse import validate_spec

ADMIN = Principal("root", True, "token")
PATHS = ProjectLimits(paths=["/data/vision", "/scratch/"])


def member(*projects: str) -> Principal:
    roles = dict.fromkeys(projects or ("vision",), Role.MEMBER)
    return Principal("maria", False, "token", roles=MappingProxyType(roles))


@pytest.fixture
async def limited(cluster: SimulatedCluster) -> SimulatedCluster:
    """A cluster with a project of at most four devices a job."""
    limits = {"priority": 2, "devices": 4, "paths": ["/shared"]}
    async with cluster.db.transaction() as session:
        session.add(Project(name="vision", limits=limits, created_at=cluster.clock.now()))
    return cluster


def job(**more: Any) -> Any:
    document = {"name": "a", "task": {"name": "synthetic"}, "project": "vision", **more}
    return validate_spec(document)


@pytest.mark.parametrize(
    "path", ["/data/vision", "/data/vision/a/../b", "//data/vision/x", "/scratch/maria"]
)
def test_paths_under_the_folders_are_allowed(path: str) -> None:
    check_limits(PATHS, job(checkpoint={"path": path}))


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("checkpoint.path", {"checkpoint": {"path": "/data/visionary"}}),
        ("checkpoint.path", {"checkpoint": {"path": "/data/vision/../speech"}}),
        ("script.path", {"task": None, "script": {"path": "/home/otto/train.py"}}),
        ("script.interpreter", {"task": None, "script": {"module": "a", "interpreter": "/x/py"}}),
        ("script.working_dir", {"task": None, "script": {"module": "a", "working_dir": "/x"}}),
        ("code", {"code": "/home/otto"}),
        ("task.params.root", {"task": {"name": "mnist", "params": {"root": "/data/speech"}}}),
    ],
)
def test_paths_elsewhere_are_refused(field: str, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError) as error:
        check_limits(PATHS, job(**more))
    assert error.value.field == field
    assert "is not under a folder that project vision may use (/data/vision, /scratch/)" in str(
        error.value
    )
    with pytest.raises(InvalidValueError, match=r"\(none, only uploaded code\)"):
        check_limits(LIMITS_OF_NEW, job(**more))
    check_limits(None, job(**more))
    check_limits(ProjectLimits(), job(**more))


def test_jobs_with_uploaded_code_need_no_path() -> None:
    script = {"path": "train.py", "working_dir": "sub", "interpreter": "python3"}
    check_limits(LIMITS_OF_NEW, job(task=None, script=script, code="0" * 64))


async def test_submission_is_within_the_limits(limited: SimulatedCluster) -> None:
    jobs = limited.coordinator.jobs
    for more, message in (
        ({"priority": 3}, "priority: is above 2, the highest priority in project vision; an admin"),
        ({"workers": 5}, "resources.workers: is above 4, the most devices of a job in project"),
        ({"checkpoint": {"path": "/etc"}}, "checkpoint.path: is not under a folder"),
    ):
        with pytest.raises(InvalidValueError, match=message):
            await jobs.limited_to(member()).submit(spec(**more))
        with pytest.raises(InvalidValueError, match=message):
            await limited.coordinator.queue.limited_to(member()).forecast(spec(**more))
        await jobs.limited_to(ADMIN).submit(spec(**more, project="vision"))
    allowed, _ = await jobs.limited_to(member()).submit(spec(4, priority=2))
    with pytest.raises(InvalidValueError, match="is above 4"):
        await jobs.limited_to(member()).resize(allowed.id, {"workers": 5})
    await jobs.limited_to(member()).pause(allowed.id)
    with pytest.raises(InvalidValueError, match="is above 4"):
        await jobs.limited_to(member()).resume(allowed.id, resources={"workers": 5})
    await jobs.limited_to(member()).resume(allowed.id, resources={"workers": 3})


async def test_default_project_allows_everything(limited: SimulatedCluster) -> None:
    jobs = limited.coordinator.jobs.limited_to(member("default"))
    await jobs.submit(spec(9, priority=7, checkpoint={"path": "/etc"}))


@pytest.mark.parametrize("method", ["grid", "tpe"])
async def test_each_run_of_an_experiment_is_checked(limited: SimulatedCluster, method: str) -> None:
    space = {"resources.workers": [1, 8]}
    sweep = validate_experiment({**SWEEP, "method": method, "trials": 2, "space": space})
    experiments = limited.coordinator.experiments.limited_to(member())
    for call in (experiments.create, experiments.plan):
        with pytest.raises(InvalidValueError, match="is above 4, the most devices of a job"):
            await call(sweep)
    await limited.coordinator.experiments.limited_to(ADMIN).create(sweep)


async def test_new_projects_and_configured_ones_are_limited(limited: SimulatedCluster) -> None:
    projects = limited.coordinator.projects.limited_to(ADMIN)
    made = await projects.create("speech", ProjectLimits.model_validate({"priority": None}))
    assert made.limits == ProjectLimits(priority=None, paths=[])
    configured = {name: ProjectLimits(devices=8) for name in ("vision", "audio")}
    await projects.configure(configured)
    assert (await projects.get("vision")).limits.devices == 8
    assert (await projects.get("vision")).limits.paths == ["/shared"]
    assert (await projects.get("audio")).limits == ProjectLimits(priority=0, devices=8, paths=[])


async def test_configured_names_differ_by_more_than_case(limited: SimulatedCluster) -> None:
    projects = limited.coordinator.projects
    for names in (["Vision"], ["audio", "AUDIO"]):
        with pytest.raises(ConflictError, match="already; use another name"):
            await projects.configure({name: ProjectLimits() for name in names})


async def test_limits_of_admins_return_with_the_configuration(limited: SimulatedCluster) -> None:
    """The file is the truth for what it names, at each start."""
    projects = limited.coordinator.projects.limited_to(ADMIN)
    await projects.configure({"vision": ProjectLimits(devices=8), "audio": ProjectLimits()})
    vision = await projects.change("vision", ProjectLimits(priority=1))
    assert (vision.limits.devices, vision.limits.priority, vision.configured) == (8, 1, ["devices"])
    with pytest.raises(InvalidValueError, match=r"is set to 8 in the coordinator's configuration"):
        await projects.change("vision", ProjectLimits(devices=2))
    await projects.change("vision", ProjectLimits(devices=8))  # as it is
    member_jobs = limited.coordinator.jobs.limited_to(member())
    await member_jobs.submit(spec(8))
    await projects.configure({})
    vision = await projects.get("vision")
    assert (vision.limits.devices, vision.limits.priority, vision.configured) == (4, 1, [])
    assert (await projects.get("audio")).limits == LIMITS_OF_NEW
