"""deploy/prometheus-rules.yaml: its series are those that the coordinator has."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from support.database import on_sqlite

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deploy" / "prometheus-rules.yaml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]
]
PAGE = (ROOT / "docs" / "operations.md").read_text()


@on_sqlite
async def test_series_of_rules_exist(client: httpx.AsyncClient) -> None:
    await client.get("/healthz")
    text = (await client.get("/metrics")).text
    series = set(re.findall(r"^# TYPE (\w+)", text, re.M))
    for rule in RULES:
        named = set(re.findall(r"\btrainhall_\w+", rule["expr"]))
        assert named <= series, rule["alert"]
        assert named or rule["expr"].startswith("up{"), rule["alert"]


@on_sqlite
async def test_every_series_of_the_cluster_is_documented(client: httpx.AsyncClient) -> None:
    await client.get("/healthz")
    text = (await client.get("/metrics")).text
    gauges = set(re.findall(r"^# TYPE (trainhall_\w+) gauge", text, re.M))
    missing = {name for name in gauges if f"`{name}" not in PAGE}
    # The times at which counters were made.
    assert {name for name in missing if not name.endswith("_created")} == set()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_rules_have_severity_and_summary(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"].endswith(".")


@pytest.mark.processes
def test_promtool_accepts_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool on the PATH: it is part of Prometheus, and checks expressions")
    done = subprocess.run(
        [promtool, "check", "rules", str(FILE)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
