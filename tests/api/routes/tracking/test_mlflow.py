"""MLflow's REST API of the coordinator, as its clients speak it: runs that run elsewhere."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from trainhall.cluster.api_paths import API_PREFIX

API = "/api/2.0/mlflow"
FILES = "/api/2.0/mlflow-artifacts/artifacts"


class Mlflow:
    """Sends calls that succeed, unless a status is given."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def post(self, name: str, status: int = 200, /, **body: Any) -> Any:
        reply = await self.client.post(f"{API}/{name}", json=body)
        assert reply.status_code == status, reply.text
        return reply.json()

    async def get(self, name: str, status: int = 200, /, **query: Any) -> Any:
        reply = await self.client.get(f"{API}/{name}", params=query)
        assert reply.status_code == status, reply.text
        return reply.json()

    async def begin(self, name: str = "a run", **body: Any) -> str:
        run = (await self.post("runs/create", run_name=name, start_time=1000, **body))["run"]
        found: str = run["info"]["run_id"]
        return found

    async def metric(self, run: str, key: str, value: Any, step: int, time: int = 5000) -> None:
        await self.post(
            "runs/log-metric", run_id=run, key=key, value=value, step=step, timestamp=time
        )

    async def job(self, run: str) -> Any:
        return (await self.client.get(f"{API_PREFIX}/training/jobs/{run}")).json()


@pytest.fixture
async def mlflow(client: httpx.AsyncClient) -> Mlflow:
    return Mlflow(client)


async def test_run_is_a_job_of_its_own_kind(mlflow: Mlflow) -> None:
    experiment = (await mlflow.post("experiments/create", name="digits"))["experiment_id"]
    found = await mlflow.get("experiments/get-by-name", experiment_name="digits")
    assert found["experiment"]["experiment_id"] == experiment
    tags = [{"key": "mlflow.user", "value": "maria"}, {"key": "team", "value": "a"}]
    run = await mlflow.begin("first", experiment_id=experiment, tags=tags)
    params = [{"key": "lr", "value": "0.10"}, {"key": "opt", "value": "adam"}]
    metrics = [
        {"key": "train/loss", "value": 1 / n, "step": n, "timestamp": 1000 * n} for n in (1, 2, 4)
    ]
    await mlflow.post("runs/log-batch", run_id=run, metrics=metrics, params=params)
    await mlflow.post("runs/set-tag", run_id=run, key="stage", value="x")
    await mlflow.post("runs/delete-tag", run_id=run, key="team")
    job = await mlflow.job(run)
    assert (job["kind"], job["state"], job["attempt"], job["spec"]) == ("run", "running", 0, None)
    assert (job["name"], job["group"], job["step"]) == ("first", "digits", 4)
    assert job["parameters"] == {"lr": 0.1, "opt": "adam"}
    assert job["mlflow_tags"] == {"mlflow.user": "maria", "stage": "x"}
    assert job["metrics"] == {"train/loss": 0.25}
    assert job["started_at"] == "1970-01-01T00:00:01.000000Z"
    read = (await mlflow.get("runs/get", run_id=run))["run"]
    assert read["data"]["params"] == params
    assert read["data"]["metrics"] == [metrics[-1]]
    assert (read["info"]["experiment_id"], read["info"]["status"]) == (experiment, "RUNNING")
    await mlflow.post("runs/update", run_id=run, status="FINISHED", end_time=61_000)
    job = await mlflow.job(run)
    assert (job["state"], job["ran_seconds"]) == ("completed", 60.0)
    await mlflow.post("runs/update", run_id=run, status="RUNNING")
    assert (await mlflow.job(run))["finished_at"] is None
    listed = (await mlflow.client.get(f"{API_PREFIX}/training/jobs")).json()["items"]
    assert [each["id"] for each in listed] == [run]


async def test_points_count_once(mlflow: Mlflow, app: FastAPI) -> None:
    run = await mlflow.begin()
    for _ in range(2):  # the first answer was lost
        await mlflow.metric(run, "loss", 0.5, 3)
        await mlflow.metric(run, "bad", "NaN", 3)
    app.state.coordinator.runs._recent.clear()  # another coordinator took over
    await mlflow.metric(run, "loss", 0.5, 3)
    await mlflow.metric(run, "loss", 2.0, 1)
    await mlflow.metric(run, "loss", 0.25, 3, time=6000)
    history = (await mlflow.get("metrics/get-history", run_id=run, metric_key="loss"))["metrics"]
    expected = [(3, 0.5, 5000), (1, 2.0, 5000), (3, 0.25, 6000)]
    assert [(p["step"], p["value"], p["timestamp"]) for p in history] == expected
    first = await mlflow.get("metrics/get-history", run_id=run, metric_key="loss", max_results=2)
    rest = await mlflow.get(
        "metrics/get-history", run_id=run, metric_key="loss", page_token=first["next_page_token"]
    )
    assert first["metrics"] + rest["metrics"] == history
    curves = (await mlflow.client.get(f"{API_PREFIX}/metrics/jobs/{run}")).json()["series"]
    points = {c["name"]: [(p["step"], p["value"]) for p in c["points"]] for c in curves}
    assert points == {"loss": [(1, 2.0), (3, 0.25)], "bad": [(3, "NaN")]}


async def test_curves_outlive_packing(mlflow: Mlflow, app: FastAPI) -> None:
    run = await mlflow.begin()
    for start in range(0, 3000, 1000):
        metrics = [
            {"key": "loss", "value": n, "step": n, "timestamp": n}
            for n in range(start, start + 1000)
        ]
        await mlflow.post("runs/log-batch", run_id=run, metrics=metrics)
    await mlflow.post("runs/update", run_id=run, status="FAILED")
    await app.state.coordinator.packer.pack_once()
    history = (await mlflow.get("metrics/get-history", run_id=run, metric_key="loss"))["metrics"]
    assert [point["step"] for point in history] == list(range(3000))
    last = (await mlflow.get("runs/get", run_id=run))["run"]["data"]["metrics"]
    assert last == [{"key": "loss", "value": 2999.0, "step": 2999, "timestamp": 2999}]
    assert (await mlflow.job(run))["state"] == "failed"


async def test_artifacts_are_outputs_of_the_run(mlflow: Mlflow, app: FastAPI) -> None:
    run, client = await mlflow.begin(), mlflow.client
    folder = f"{FILES}/0/{run}/artifacts"
    for path, body in (("a%20b.txt", b"text"), ("sub/%C3%BC", b"x" * 10), ("a%20b.txt", b"new")):
        assert (await client.put(f"{folder}/{path}", content=body)).status_code == 200
    listed = (await client.get(FILES, params={"path": f"0/{run}/artifacts"})).json()["files"]
    assert listed == [
        {"path": "a b.txt", "is_dir": False, "file_size": 3},
        {"path": "sub", "is_dir": True},
    ]
    assert (await client.get(f"{folder}/a%20b.txt")).content == b"new"
    outputs = (await client.get(f"{API_PREFIX}/outputs/jobs/{run}")).json()["items"]
    assert [(o["path"], o["size"]) for o in outputs] == [
        ("mlflow/a b.txt", 3),
        ("mlflow/sub/ü", 10),
    ]
    assert (await client.delete(f"{folder}/sub")).status_code == 200
    store = app.state.coordinator.outputs._store
    assert [path.name for path in store._job(run).iterdir()] == [outputs[0]["sha256"]]
    for path in ("../x", "a/%2e%2e/x", "%00"):
        reply = await client.put(f"{FILES}/0/{run}/artifacts/{path}", content=b"x")
        assert reply.status_code in (400, 404), path
    missing = await client.get(f"{folder}/gone")
    assert (missing.status_code, missing.json()["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")


async def test_runs_refuse_what_takes_processes(mlflow: Mlflow) -> None:
    run, jobs = await mlflow.begin(), f"{API_PREFIX}/training/jobs"
    assert (await mlflow.job(run))["allowed_commands"] == ["cancel"]
    for method, path, body in (
        ("PUT", "pause", None), ("PUT", "resume", None), ("PATCH", "", {"workers": 2}),
        ("POST", "gradients", None),
    ):  # fmt: skip
        where = f"{jobs}/{run}/{path}".rstrip("/")
        reply = await mlflow.client.request(method, where, json=body)
        assert reply.status_code in (409, 422), (path, reply.text)
    assert (await mlflow.client.delete(f"{jobs}/{run}")).json()["state"] == "cancelled"
    assert (await mlflow.get("runs/get", run_id=run))["run"]["info"]["status"] == "KILLED"
    await mlflow.post("runs/delete", run_id=run)
    assert (await mlflow.job(run))["archived"]
    await mlflow.post("runs/restore", run_id=run)
    assert (await mlflow.client.delete(f"{jobs}/{run}/record")).status_code == 204
    await mlflow.get("runs/get", 404, run_id=run)


async def test_runs_take_no_part_in_the_queue(mlflow: Mlflow, app: FastAPI) -> None:
    run = await mlflow.begin()
    spec = {"name": "net", "task": {"name": "digits"}}
    job = (await mlflow.client.post(f"{API_PREFIX}/training/jobs", json=spec)).json()["id"]
    await app.state.coordinator.reconciler.pass_once()
    queue = (await mlflow.client.get(f"{API_PREFIX}/cluster/queue")).json()["items"]
    assert [each["job_id"] for each in queue] == [job]
    assert (await mlflow.job(run))["state"] == "running"


async def test_imported_runs_keep_their_ids(mlflow: Mlflow) -> None:
    tags = [{"key": "trainhall.run_id", "value": "0123456789abcdef0123456789abcdef"}]
    first = await mlflow.begin("old", tags=tags)
    assert first == tags[0]["value"] == await mlflow.begin("old", tags=tags)
    await mlflow.post("runs/update", run_id=first, status="FINISHED", end_time=2000)
    job = await mlflow.job(first)
    assert job["reason_code"] == "run_imported"
    spec = {"name": "net", "task": {"name": "digits"}}
    other = (await mlflow.client.post(f"{API_PREFIX}/training/jobs", json=spec)).json()["id"]
    taken = await mlflow.post(
        "runs/create", 409, tags=[{"key": "trainhall.run_id", "value": other}]
    )
    assert taken["error_code"] == "RESOURCE_ALREADY_EXISTS"
    await mlflow.post("runs/log-metric", 404, run_id=other, key="a", value=1)


@pytest.mark.parametrize(
    ("name", "body", "status", "says"),
    [
        ("runs/log-metric", {"run_id": "none", "key": "a", "value": 1}, 404, "none"),
        ("runs/log-metric", {"run_id": "../x", "key": "a", "value": 1}, 400, "run_id must be"),
        ("runs/log-metric", {"key": "a", "value": 1}, 400, "run_id must be"),
        ("runs/log-metric", {"run_id": "RUN", "key": "a", "value": True}, 400, "value must be"),
        ("runs/log-metric", {"run_id": "RUN", "key": "a", "value": 1, "step": -1}, 400, "step"),
        ("runs/log-batch", {"run_id": "RUN", "metrics": [{"key": "a", "value": 1}] * 1001}, 400,
         "at most 1000"),
        ("runs/log-batch", {"run_id": "RUN", "params": [{"key": f"p{i}"} for i in range(1001)]},
         400, "at most 1000"),
        ("runs/update", {"run_id": "RUN", "status": "DONE"}, 400, "FINISHED"),
        ("runs/update", {"run_id": "RUN", "status": "FAILED", "end_time": 10**17}, 400, "1970"),
        ("runs/create", {"experiment_id": "77"}, 404, "experiment"),
        ("runs/create", {"experiment_id": "0", "start_time": "soon"}, 400, "start_time"),
        ("runs/search", {"experiment_ids": ["0"], "filter": "metrics.loss <"}, 400, "filter"),
        ("runs/search", {"experiment_ids": ["0"], "filter": "color = 'a'"}, 400, "color"),
        ("runs/search", {"experiment_ids": ["0"], "max_results": 0}, 400, "max_results"),
        ("runs/search", {"experiment_ids": ["x"]}, 400, "experiment_ids"),
        ("registered-models/create", {"name": "m"}, 404, "tracking server of your own"),
    ],
)  # fmt: skip
async def test_bad_calls_say_why(
    mlflow: Mlflow, name: str, body: dict[str, Any], status: int, says: str
) -> None:
    run = await mlflow.begin()
    body = {k: run if v == "RUN" else v for k, v in body.items()}
    refused = await mlflow.post(name, status, **body)
    assert says in refused["message"]
    assert refused["error_code"]
    assert (await mlflow.job(run))["metrics"] == {}


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff"])
async def test_damaged_bodies_are_refused(mlflow: Mlflow, body: bytes) -> None:
    reply = await mlflow.client.post(f"{API}/runs/log-metric", content=body)
    assert (reply.status_code, reply.json()["error_code"]) == (400, "BAD_REQUEST")
    reply = await mlflow.client.get("/api/3.0/mlflow/server-info")
    assert (reply.status_code, reply.json()["error_code"]) == (404, "ENDPOINT_NOT_FOUND")


async def test_search_filters_and_orders(mlflow: Mlflow) -> None:
    other = (await mlflow.post("experiments/create", name="other"))["experiment_id"]
    runs = {}
    for number, name in enumerate(("a", "b", "c")):
        runs[name] = await mlflow.begin(name, experiment_id="0")
        await mlflow.metric(runs[name], "val/loss", 3 - number, 1)
        await mlflow.post("runs/log-parameter", run_id=runs[name], key="lr", value=f"0.{number}")
    await mlflow.begin("elsewhere", experiment_id=other)
    await mlflow.post("runs/update", run_id=runs["c"], status="FINISHED")

    async def names(**asked: Any) -> list[str]:
        found = await mlflow.post("runs/search", experiment_ids=["0"], **asked)
        return [run["info"]["run_name"] for run in found["runs"]]

    assert await names(order_by=["metrics.`val/loss` DESC"]) == ["a", "b", "c"]
    assert await names(filter="metrics.`val/loss` < 2.5", order_by=["run_name"]) == ["b", "c"]
    assert await names(filter="params.lr = '0.1' and attributes.status = 'RUNNING'") == ["b"]
    assert await names(filter="run_name LIKE 'c%' AND params.lr IN ('0.2', '0.3')") == ["c"]
    assert await names(filter="params.lr IN ('0.0, 0.1', '0.2')") == ["c"]
    assert await names(filter="params.other NOT IN ('a')") == []
    assert await names(filter="params.other LIKE '%'") == []
    assert await names(
        filter="run_id LIKE '%' and params.lr ILIKE '%.%_'", order_by=["run_name"]
    ) == ["a", "b", "c"]
    assert await names(filter="tags.team IS NOT NULL") == []
    first = await mlflow.post("runs/search", experiment_ids=["0"], max_results=2)
    await mlflow.begin("later", experiment_id="0")
    rest = await mlflow.post(
        "runs/search", experiment_ids=["0"], max_results=2, page_token=first["next_page_token"]
    )
    listed = [run["info"]["run_name"] for run in first["runs"] + rest["runs"]]
    assert (sorted(listed), rest.get("next_page_token")) == (["a", "b", "c"], None)
    listed = (await mlflow.get("experiments/search"))["experiments"]
    assert [each["name"] for each in listed] == ["other", "Default"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_links_change_nothing(mlflow: Mlflow, method: str) -> None:
    run = await mlflow.begin()
    for call in (
        "runs/create", f"runs/delete?run_id={run}", f"runs/update?run_id={run}&run_name=b",
        f"runs/log-batch?run_id={run}", "experiments/create?name=a",
    ):  # fmt: skip
        reply = await mlflow.client.request(method, f"{API}/{call}")
        assert reply.status_code == 405, (call, reply.text)
    listed = (await mlflow.client.get(f"{API_PREFIX}/training/jobs")).json()["items"]
    assert [(each["id"], each["name"]) for each in listed] == [(run, "a run")]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", f"{API}/experiments/get-by-name?experiment_name=a%00", None, 400),
        ("GET", f"{API}/metrics/get-history?run_id=RUN&metric_key=%00", None, 400),
        ("GET", f"{FILES}?path=0/a%00/artifacts", None, 404),
        ("GET", f"{FILES}/0/a%00/artifacts/x", None, 404),
        ("POST", f"{API}/experiments/create",
         {"name": "a", "tags": [{"key": "trainhall.project", "value": "a\0"}]}, 400),
        ("POST", f"{API}/runs/create",
         {"tags": [{"key": "trainhall.project", "value": "a\0"}]}, 400),
        ("POST", f"{API}/runs/search", {"experiment_ids": ["0"], "run_view_type": ["ALL"]}, 400),
    ],
)  # fmt: skip
async def test_odd_values_are_refused(
    mlflow: Mlflow, method: str, path: str, body: Any, status: int
) -> None:
    run = await mlflow.begin()
    reply = await mlflow.client.request(method, path.replace("RUN", run), json=body)
    assert reply.status_code == status, reply.text


async def test_deleted_runs_are_imported_again(mlflow: Mlflow, app: FastAPI) -> None:
    tags = [{"key": "trainhall.run_id", "value": "0123456789abcdef0123456789abcdef"}]
    run = await mlflow.begin("old", tags=tags)
    await mlflow.metric(run, "loss", 0.5, 3)
    await mlflow.post("runs/update", run_id=run, status="FINISHED")
    await mlflow.client.delete(f"{API_PREFIX}/training/jobs/{run}/record")
    # The deletion that is under way would take the new run's points along.
    refused = await mlflow.post("runs/create", 409, tags=tags)
    assert "was deleted" in refused["message"]
    await app.state.coordinator.deleted_jobs.sweep()
    await mlflow.begin("old", tags=tags)
    await mlflow.metric(run, "loss", 0.5, 3)
    history = await mlflow.get("metrics/get-history", run_id=run, metric_key="loss")
    assert len(history["metrics"]) == 1


async def test_tag_of_the_name_follows_it(mlflow: Mlflow) -> None:
    async def names(run: str) -> tuple[str, str]:
        read = (await mlflow.get("runs/get", run_id=run))["run"]
        return read["info"]["run_name"], read["data"]["tags"][0]["value"]

    run = await mlflow.begin("old", tags=[{"key": "mlflow.runName", "value": "old"}])
    await mlflow.post("runs/update", run_id=run, run_name="new")
    assert await names(run) == ("new", "new")
    await mlflow.post("runs/set-tag", run_id=run, key="mlflow.runName", value="newer")
    assert await names(run) == ("newer", "newer")
