"""`trainhall ls --sort KEY --query QUERY`, in front of a coordinator."""

import re
from pathlib import Path
from typing import get_args

import pytest
from support.cluster.cluster import Cluster, running_cluster

from trainhall.api.host.login_name import login_name
from trainhall.cli.base.errors import NotFoundError, UsageError, WrongStateError
from trainhall.cli.jobs import annotations
from trainhall.cli.jobs import commands as jobs
from trainhall.cli.jobs.listing import command as listing
from trainhall.cli.jobs.listing.columns import value_columns
from trainhall.cluster.jobs.listing.keys import FIELDS


def test_term_no_has_no_column() -> None:
    keys = [column.title for column in value_columns(["-lr"], "no:tag -no:lr loss<1", [])]
    assert keys == ["lr", "loss"]


def test_help_names_the_fields_of_a_query() -> None:
    _, option = get_args(listing.list_jobs.__annotations__["query"])
    assert set(FIELDS) <= set(re.findall(r"\w+", option.help))
    assert "no:FIELD" in option.help


@pytest.mark.processes
def test_list_is_sorted_and_filtered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_cluster(tmp_path, slots=1) as cluster:
        ids: list[str] = []
        for name, rate in (("slow", 0.001), ("fast", 0.1), ("plain", None)):
            ids.append(submit(cluster, name, rate))

        def listed(
            query: str | None = None, sort: str | None = None, view: str | None = None
        ) -> list[list[str]]:
            listing.list_jobs(query=query, sort=sort, view=view, url=cluster.url)
            return [re.split(" {2,}", line) for line in capsys.readouterr().out.splitlines()]

        header, *rows = listed(sort="-parameters.lr")
        column = header.index("lr")
        assert [row[1] for row in rows] == ["fast", "slow", "plain"]
        assert [row[column] for row in rows] == ["0.1", "0.001", "—"]
        assert [row[1] for row in listed(query="lr<0.01 state:queued")[1:]] == ["slow"]
        header, *rows = listed(query="lr<0.05")
        assert [row[header.index("lr")] for row in rows] == ["0.001"]
        listing.list_jobs(query="parameters.lrr>0", url=cluster.url)
        assert "No job has a parameter lrr; did you mean lr?" in capsys.readouterr().err
        with pytest.raises(UsageError, match=r"query: at character 4: expected a value after >"):
            listed(query="lr>")
        with pytest.raises(UsageError, match=r"did you mean parameters\.lr\?"):
            listed(sort="lr")
        chosen = "name, parameters.lr,lr,loss:min,user,gpu_hours,world_size"
        listing.list_jobs(columns=chosen, sort="name", url=cluster.url)
        shown = capsys.readouterr()
        user = login_name() or "—"
        assert [line.split() for line in shown.out.splitlines()] == [
            ["NAME", "lr", "lr", "loss.min", "OWNER", "GPU-HOURS", "WORKERS"],
            ["fast", "0.1", "0.1", "—", user, "0", "2"],
            ["plain", "—", "—", "—", user, "0", "2"],
            ["slow", "0.001", "0.001", "—", user, "0", "2"],
        ]
        assert shown.err == "None of these jobs has a value of loss.min.\n"
        listing.list_jobs(columns="nam", url=cluster.url)
        assert capsys.readouterr().err.endswith("value of nam; did you mean name?\n")
        with pytest.raises(UsageError, match="needs names between its commas"):
            listing.list_jobs(columns="name,", url=cluster.url)
        header, *rows = listed(query="-metrics.loss.min<0")
        assert {row[header.index("loss.min")] for row in rows} == {"—"}
        saved = {"name": "rates", "sort": "parameters.lr", "columns": ["name", "parameters.lr"]}
        cluster.post("/views", json=saved)
        header, *rows = listed(view="rates")
        assert [row[1] for row in rows] == ["slow", "fast", "plain"]
        assert rows[0][header.index("lr")] == "0.001"
        assert next(row[1] for row in listed(view="rates", sort="-name")[1:]) == "slow"
        with pytest.raises(NotFoundError, match="there is no view 'rate'; there are rates"):
            listed(view="rate")
        annotations.tag(ids[:2], add=["best", "v2"], url=cluster.url)
        annotations.tag(ids[:1], remove=["V2"], url=cluster.url)
        annotations.tag(ids[2:], url=cluster.url)
        lines = [line.split(")  ")[1] for line in capsys.readouterr().out.splitlines()]
        assert lines == ["best, v2", "best, v2", "best", "no tags"]
        header, *rows = listed(query="tag:v2")
        assert ([row[1] for row in rows], "TAGS" in header) == (["fast"], True)
        annotations.note(ids[0], "*slow*\n", url=cluster.url)
        annotations.note(ids[0], url=cluster.url)
        assert capsys.readouterr().out.endswith("notes replaced\n*slow*\n")
        with pytest.raises(UsageError, match="begins with a letter or digit"):
            annotations.tag(ids[:1], add=["#1"], url=cluster.url)
        with pytest.raises(UsageError, match="--queue and --sort exclude each other"):
            listing.list_jobs(queue=True, sort="name", url=cluster.url)
        ended, others = ids[:2], listed()[1:]
        with pytest.raises(WrongStateError, match="cannot be archived: it is queued"):
            annotations.archive(ended, url=cluster.url)
        jobs.cancel(ended, url=cluster.url)
        annotations.archive(ended, url=cluster.url)
        assert capsys.readouterr().out.count("  archived\n") == 2
        assert [row[1] for row in listed()[1:]] == ["plain"]
        assert len(listed(query="archived:yes")[1:]) == 2
        annotations.unarchive([ended[0][:10]], url=cluster.url)
        assert capsys.readouterr().out == f"slow ({ended[0]})  not archived\n"
        monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
        with pytest.raises(UsageError, match="the 2 jobs would be deleted for good"):
            annotations.rm(ended, url=cluster.url)
        annotations.rm(ended, yes=True, url=cluster.url)
        assert capsys.readouterr().out.count("  deleted\n") == 2
        assert len(listed(query="archived:yes,no")) == len(others) - 1


def submit(cluster: Cluster, name: str, rate: float | None) -> str:
    spec = {"name": name, "task": {"name": "synthetic"}, "resources": {"workers": 2}}
    if rate is not None:
        spec["parameters"] = {"lr": rate}
    return cluster.submit(spec)
