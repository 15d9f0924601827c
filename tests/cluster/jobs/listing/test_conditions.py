"""Jobs that a query keeps."""

from datetime import timedelta

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.examples import share_of
from support.storage.listed_jobs import START, ListedJobs

from trainhall.cluster.errors import InvalidValueError
from trainhall.db.experiments import Experiment

HOUR = timedelta(hours=1)


async def test_keeps_jobs_by_text(jobs: ListedJobs) -> None:
    await jobs.add("ResNet 50", user="maria", task="cifar10", strategy="ddp", state="failed")
    await jobs.add("resnet", user="Jo", project="vision", task="digits", strategy="fsdp")
    await jobs.add("100%", state="paused", reason_code="pause_requested")
    for query, expected in {
        "name:net": "resnet ResNet 50", "name=resnet": "resnet", "resnet -50": "resnet",
        "user:MARIA": "ResNet 50", "-user:maria": "100% resnet",
        "user:maria,jo": "resnet ResNet 50",
        "-user:maria,jo": "100%", "project=vision": "resnet", "task:digits": "resnet",
        "strategy:fsdp": "resnet", "state:failed": "ResNet 50", "-state:failed": "100% resnet",
        "state:failed,paused": "100% ResNet 50", "state:Paused -state:failed": "100%",
        "state:failed state:paused": "", "id:0001": "resnet", "id=0001": "", "0001": "resnet",
        "%": "100%", "reason_code:pause_requested": "100%", '"net 5"': "ResNet 50",
        "": "100% resnet ResNet 50",
    }.items():  # fmt: skip
        assert await jobs.names(query) == expected, query
    assert await jobs.names("user:maria,jo", states=["failed"], search="50") == "ResNet 50"
    assert await jobs.names("state:failed", states=["paused"]) == ""
    assert await jobs.names("state:failed,paused", sort="name") == "100% ResNet 50"


async def test_me_is_the_caller_alone(jobs: ListedJobs) -> None:
    await jobs.add("a", user="maria")
    await jobs.add("b", user="me")
    await jobs.add("me")
    for query, expected in {
        "user:me": "a",
        "user:ME,x": "a",
        "-user:me": "me b",
        "me": "me",
    }.items():
        assert await jobs.names(query, me="maria") == expected, query
    with pytest.raises(InvalidValueError, match="at character 8: the caller") as refused:
        await jobs.names("a user:me")
    assert refused.value.value == "a user:me"


async def test_keeps_jobs_by_number(jobs: ListedJobs) -> None:
    await jobs.add("a", step=10, priority=-1, world_size=4, ran=90.0)
    await jobs.add("b", step=2**40, priority=3, world_size=1)
    for query, expected in {
        "step>10": "b", "step>=10": "b a", "step<10.5": "a", "step=10": "a", "step:1,10": "a",
        "priority<0": "a", "priority=-1": "a", "-priority<0": "b", "world_size>=4": "a",
        "step<1e300": "b a", "duration>1m": "a", "duration<=90": "a", "-duration<2h": "b",
    }.items():  # fmt: skip
        assert await jobs.names(query) == expected, query


async def test_keeps_jobs_by_time(jobs: ListedJobs) -> None:
    await jobs.add("a", created_at=START, started_at=START + HOUR)
    await jobs.add("b", created_at=START + 24 * HOUR)
    for query, expected in {
        "created_at:2026-11-20": "a", "created_at:20261120": "a",
        "created_at>2026-11-20": "b", "created_at>=2026-11-20": "b a",
        "created_at<=2026-11-20": "a", "created_at<2026-11-21": "a", "started_at>2020-01-01": "a",
        "-started_at>2020-01-01": "b", "created_at=2026-11-20T12:00Z": "a",
        "created_at<2026-11-20T13:00:01+01:00": "a", "created_at<2026-11-20T12:00": "",
    }.items():  # fmt: skip
        assert await jobs.names(query) == expected, query


async def test_keeps_jobs_by_parameters_and_metrics(jobs: ListedJobs) -> None:
    await jobs.add("none")
    await jobs.add("a", parameters={"lr": 0.1, "opt": "sgd", "aug": True}, metrics={"val/f1": 0.5})
    await jobs.add("b", parameters={"lr": 1, "opt": "0.1"}, metrics={"val/f1": "NaN", "lr": 9})
    for query, expected in {
        "lr>0.05": "b a", "lr>0.5": "b", "parameters.lr=1.0": "b", "metrics.lr>1": "b",
        "lr:0.1,1": "b a", "-lr>0.5": "a none", "opt:SGD": "a", "opt:0.1": "b", "opt>0": "",
        "aug:true": "a", "aug:false": "", "val/f1>=0.5": "a", "metrics.val/f1<1": "a",
        "parameters.other:x": "", "-parameters.other:x": "b a none", "metrics.other<5": "",
        "lr>0.05 val/f1>0.1 -b": "a",
    }.items():  # fmt: skip
        assert await jobs.names(query) == expected, query
    assert await jobs.names("lr>0", sort="-metrics.val/f1") == "a b"


async def test_keeps_jobs_of_an_experiment(jobs: ListedJobs) -> None:
    async with jobs.database.transaction() as session:
        for number, (key, name) in enumerate({"7c0d": "Rates", "91bc": "other rates"}.items(), 1):
            session.add(
                Experiment(
                    id=key, number=number, name=name, kind="sweep", spec={}, state="running",
                    reason="", reason_code="", metric="loss", goal="min", objective_at="last",
                    parallel=1, created_at=START,
                )
            )  # fmt: skip
    await jobs.add("none")
    await jobs.add("a", experiment_id="7c0d", trial=1, repeat=1)
    await jobs.add("b", experiment_id="91bc", trial=1, repeat=1)
    for query, expected in {
        "experiment:rates": "b a", "experiment=rates": "a", "experiment:7c0": "a",
        "experiment=91BC": "b", "-experiment:rates": "none", 'experiment:"other rates"': "b",
        "experiment:7c0d,91bc": "b a", "experiment=7c0": "",
    }.items():  # fmt: skip
        assert await jobs.names(query) == expected, query


async def test_error_has_position_and_remedy(jobs: ListedJobs) -> None:
    await jobs.add("a", parameters={"lr": 0.1}, metrics={"val/f1": 0.5})
    for query, position, expected in (
        ("lr>", 3, "at character 4: expected a value after >"),
        ("a lrr>1", 2, "did you mean lr?"),
        ("stat:failed", 0, "did you mean state?"),
        ("a xyzzy:1", 2, "fields are name, id, state,"),
        ("state:faild", 6, "did you mean failed?"),
        ("step:many", 5, "expected a number"),
        ("step<1e999", 5, "expected a number"),
        ("lr<big", 3, "expected a number"),
        ("name<5", 5, "expected name:VALUE; name is text"),
        ("duration>soon", 9, "expected a duration, such as 90s"),
        ("created_at>now", 11, "expected a day or time, such as 2026-11-26"),
        ("created_at>0001-01-01T00:00+23:59", 11, "expected a day or time"),
        ("duration>2 h", 11, "write duration>2h"),
        ("parameters.a/b>1", 0, "use parameters.NAME"),
    ):
        with pytest.raises(InvalidValueError) as caught:
            await jobs.names(query)
        assert caught.value.position == position, query
        assert expected in caught.value.message


terms = st.lists(
    st.sampled_from([
        "name", "id", "state", "step", "duration", "created_at", "lr", "parameters.lr", "loss",
        "metrics.loss", ":", "=", "<", ">=", "-", ",", " ", '"', "\\", "'", "%", "failed", "0.1",
        "9" * 20, "1e308", "2026-11-20", "9999-12-31", "ü", "😀", "{", "}", "$", "a",
    ])
    | st.text(max_size=3),
    max_size=14,
).map("".join)  # fmt: skip


async def test_any_query_is_answered_or_refused(jobs: ListedJobs) -> None:
    await jobs.add("a", parameters={"lr": 0.1}, metrics={"loss": 0.5})
    queries: list[str] = []

    @settings(max_examples=share_of(150), database=None, phases=[Phase.generate])
    @given(terms)
    def collect(query: str) -> None:
        queries.append(query)

    collect()
    answered, refused = 0, []
    for query in queries:
        try:
            await jobs.service.list(query=query)
            answered += 1
        except InvalidValueError as error:
            refused.append(error.position)
    assert answered > 0
    assert None not in refused
