"""Gradients of a running job are recorded on its page, and shown by layer."""

import re

import pytest
from playwright.sync_api import Page, expect
from support.cluster.cluster import Cluster

pytestmark = pytest.mark.browser


def test_gradients_are_recorded_while_a_job_runs(page: Page, cluster: Cluster) -> None:
    job = cluster.submit(
        {
            "name": "endless",
            "task": {"name": "synthetic", "params": {"step_seconds": 0.02, "hidden": [8]}},
            "resources": {"workers": 2},
            "training": {"steps": 1_000_000},
        }
    )
    cluster.wait_for_step(job, 1)
    page.goto(f"/jobs/{job}")
    page.get_by_role("tab", name="Gradients").click()
    expect(page.get_by_text("No gradients recorded")).to_be_visible()
    page.get_by_role("button", name="Record gradients").click()
    table = page.get_by_role("table", name="Gradients by parameter")
    expect(table.get_by_role("row")).to_have_count(5)
    expect(page.get_by_role("img", name="Magnitudes of the gradient of 0.weight")).to_be_visible()
    table.get_by_role("button", name="2.bias").click()
    expect(page.get_by_text(re.compile(r"^1 value, 0 zero$"))).to_be_visible()
    table.get_by_role("combobox", name="Order").click()
    page.get_by_role("option", name="Largest first").click()
    expect(table.get_by_role("row").nth(1)).to_contain_text("weight")
    page.reload()
    expect(table.get_by_role("row")).to_have_count(5)
    cluster.request("DELETE", f"/training/jobs/{job}")
    expect(page.get_by_role("button", name="Record gradients")).to_have_count(0)
