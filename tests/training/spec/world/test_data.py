"""Data sets of a spec: what is refused, and what their names stand for."""

from pathlib import Path
from typing import Any

import pytest

from trainhall.training.spec import SpecError
from trainhall.training.spec.parse import parse_spec, refuse_undefined, validate_spec
from trainhall.training.spec.world.data import DataSpec

SHA = "0" * 64
SCRIPT = {"name": "job", "code": "a" * 64, "script": {"path": "train.py"}}
URL = {"name": "a", "url": "https://x.example/a.zip", "sha256": SHA}


@pytest.mark.parametrize(
    ("data", "field", "message"),
    [
        ([{"name": "a"}], "0.path", "give path or url"),
        ([{"name": "a", "path": "x"}], "0.path", "an absolute path"),
        ([{"name": "1", "path": "/x"}], "0.name", "must be a letter"),
        ([{"name": "a", "path": "/x", "unpack": True}], "0.unpack", "with a url"),
        ([{**URL, "path": "/x"}], "0.url", "exclude each other"),
        ([{**URL, "url": "file:///etc/passwd"}], "0.url", "begins with https://"),
        ([{**URL, "url": "https://me:pw@x.example/a"}], "0.url", "give a secret in `headers`"),
        ([{**URL, "sha256": None}], "0.sha256", "sha256sum"),
        ([{**URL, "sha256": "x"}], "0.sha256", "64 digits"),
        ([{**URL, "url": "https://x.example/a.csv", "unpack": True}], "0.url", ".tar.gz"),
        ([{**URL, "headers": {"A": "x\ny"}}], "0.headers.A", "printable"),
        ([{**URL, "headers": {"A": "${T}"}}], "0.headers", "secrets: [T]"),
        ([URL, {"name": "A", "path": "/x"}], "1.name", "the data set a; rename"),
        ([{"name": "a", "pth": "/x"}], "0.pth", "did you mean 'path'?"),
    ],
)
def test_bad_data_sets_are_refused(data: list[Any], field: str, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        validate_spec({**SCRIPT, "data": data})
    (problem,) = refused.value.problems
    assert problem.field == f"data.{field}"
    assert message in problem.message


def test_arguments_name_data_sets() -> None:
    args = ["--data=${data.a-b}/x", "$${data.a-b}", "${lr}"]
    script = {"path": "train.py", "args": args}
    data = [{"name": "a-b", "path": "/x"}]
    spec = validate_spec({**SCRIPT, "script": script, "data": data, "parameters": {"lr": 1}})
    refuse_undefined(spec)
    # What a value holds is not replaced again.
    assert spec.arguments_with({"a-b": "/${lr}"}) == ["--data=/${lr}/x", "${data.a-b}", "1"]
    with pytest.raises(SpecError, match="no data set is called a-b; the spec has no `data`"):
        refuse_undefined(validate_spec({**SCRIPT, "script": script, "parameters": {"lr": 1}}))


def test_paths_of_tasks_begin_with_data_sets(tmp_path: Path) -> None:
    text = """
        {name: job, data: [{name: m, path: images}],
         task: {name: mnist, params: {root: "${data.m}/train"}}}
    """
    spec = parse_spec(text, folder=tmp_path)
    assert spec.data[0].path == str(tmp_path / "images")
    ready = spec.with_data({"m": "/d"}).task
    assert ready is not None
    assert ready.params == {"root": "/d/train"}
    for root, message in (("${data.x}", "called x"), ("${data.m}/../y", "an absolute path")):
        with pytest.raises(SpecError, match=message):
            parse_spec(text.replace("${data.m}/train", root), folder=tmp_path)


def test_headers_hold_secrets() -> None:
    bearer = {**URL, "headers": {"Authorization": "Bearer ${T}"}}
    spec = validate_spec({**SCRIPT, "data": [bearer], "secrets": ["T"]})
    assert spec.data[0].headers_with({"T": "x"}) == {"Authorization": "Bearer x"}
    assert spec.warnings == []
    (warning,) = validate_spec(
        {**SCRIPT, "data": [{**URL, "headers": {"X-Api-Key": "canary"}}]}
    ).warnings
    assert "the header X-Api-Key" in warning
    assert "canary" not in warning


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://x.example/a/b.csv?x=/y", "b.csv"),
        ("https://x.example/%2e%2e%2f", "data"),
        ("https://x.example/..", "data"),
        ("https://x.example/a%20b%0a.txt", "a_b_.txt"),
    ],
)
def test_downloads_keep_a_harmless_name(url: str, name: str) -> None:
    assert DataSpec(name="a", url=url, sha256=SHA).file_name == name
