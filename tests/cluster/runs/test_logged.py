"""Parameters and tags that tracking clients log: they join the job's own."""

from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.runs import logged
from trainhall.db.models import Job


async def test_logged_parameters_join_those_of_the_spec(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 2)
    job_id = await cluster.submit(parameters={"lr": 0.5})
    await cluster.run_until(job_id, "running")
    values = {"lr": "0.1", "depth": "12", "eps": "1e-8", "optimizer": "adam", "flag": "True"}
    tags = {"team": "a", "mlflow.user": "maria", "gone": "x", "mlflow.log-model.history": "[]"}
    await cluster.report_event(job_id, "logged", {"parameters": values, "tags": tags})
    await cluster.report_event(job_id, "logged", {"parameters": {"depth": "24"}, "tags": {}})
    await cluster.report_event(job_id, "logged", {"parameters": {}, "tags": {"gone": None}})
    await cluster.report_event(job_id, "logged", {"parameters": 3})
    job = await cluster.job(job_id)
    assert job.parameters == {
        "lr": 0.5,
        "depth": 24,
        "eps": 1e-8,
        "optimizer": "adam",
        "flag": "True",
    }
    assert job.mlflow_tags == {"team": "a", "mlflow.user": "maria"}


def test_values_of_a_job_are_bounded() -> None:
    job = Job(spec={}, parameters=None, mlflow_tags=None)
    logged.join(job, {"parameters": {f"p{i}": "x" * 9999 for i in range(1000)}})
    assert job.parameters is not None
    assert len(str(job.parameters)) < 1.1 * logged.MAX_CHARS
    assert len(job.parameters["p0"]) == logged.MAX_VALUE
