"""Who waits, who holds what of the quotas, and a job that gets another number of workers."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from support.cluster.cluster import Cluster
from support.waiting import SLOW

pytestmark = pytest.mark.browser


def endless(name: str, workers: int, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "task": {"name": "synthetic", "params": {"step_seconds": 0.2, "hidden": [8]}},
        "resources": {"workers": workers},
        "training": {"steps": 1_000_000, "global_batch_size": 32},
        **more,
    }


def test_running_job_is_resized(page: Page, cluster: Cluster) -> None:
    job = cluster.submit(endless("grows", 1))
    cluster.wait_for_step(job, 1)
    page.goto(f"/jobs/{job}?tab=spec")
    header = page.locator("header").filter(has=page.get_by_test_id("job-state"))
    expect(header.get_by_text("1 worker", exact=True)).to_be_visible()
    # By keys, as it has to be possible, too.
    page.get_by_role("button", name="Resize").press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Min workers")).to_have_value("1")
    dialog.get_by_label("Min workers").fill("3")
    dialog.get_by_label("Max workers").fill("3")
    dialog.get_by_label("Max workers").press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("32")
    dialog.get_by_label("Min workers").fill("1")
    dialog.get_by_label("Max workers").fill("2")
    expect(dialog.get_by_text("Elastic:")).to_be_visible()
    dialog.get_by_label("Max workers").press("Enter")
    expect(dialog).to_have_count(0)
    # It grows in place once it has had its size for a while.
    expect(header.get_by_text("2 workers", exact=True)).to_be_visible(timeout=SLOW)
    assert cluster.job(job)["spec"]["resources"]["max_workers"] == 2
    assert cluster.job(job)["attempt"] == 1
    cluster.request("DELETE", f"/training/jobs/{job}")
    cluster.wait_for(job, "cancelled")
    resize = page.get_by_role("button", name="Resize")
    expect(resize).to_be_disabled()
    resize.focus()
    expect(page.get_by_role("tooltip")).to_contain_text("restore one of its checkpoints")


def test_long_queue_is_paged_with_holders(page: Page, cluster: Cluster) -> None:
    holder = cluster.submit(endless("holder", 1, user="ada"))
    cluster.wait_for_step(holder, 1)
    waiting = [cluster.submit(endless(f"waits-{i}", 2, user="bob")) for i in range(101)]
    page.goto("/queue")
    expect(page.get_by_test_id("waiting")).to_have_text("101 jobs waiting, first 100 shown")
    first = page.get_by_role("row").filter(has_text="waits-0").first
    expect(first).to_contain_text("1 of 2 is free, “holder” holds 1")
    page.get_by_role("button", name="Load more").click()
    expect(page.get_by_test_id("waiting")).to_have_text("101 jobs waiting")
    # Only the rows on the screen are drawn.
    assert page.get_by_role("table", name="Queue").get_by_role("row").count() < 60
    last = page.get_by_role("link", name="waits-100")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(last).to_be_visible()
    quotas = page.get_by_role("table", name="Projects and users")
    expect(quotas.get_by_role("row").filter(has_text="default")).to_contain_text(
        "1 device, no limit"
    )
    expect(quotas.get_by_role("row").filter(has_text="bob")).to_contain_text("101")
    # However far back it is, its page tells its position.
    last.click()
    position = page.get_by_role("region", name="Queue position")
    expect(position).to_contain_text("position 101 in the queue")
    expect(position).to_contain_text(
        re.compile(r"waiting for “waits-0” \(.*\), ahead in the queue")
    )
    expect(position.get_by_role("link", name="waits-0").first).to_have_attribute(
        "href", f"/jobs/{waiting[0]}"
    )
