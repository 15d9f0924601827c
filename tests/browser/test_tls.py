"""The dashboard over TLS: its pages, and the live stream of a job."""

import re
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect
from support.cluster.web import served
from support.nodes.certificates import Authority

from trainhall.api.app import create_app
from trainhall.api.host.tls import ServedCertificate
from trainhall.api.settings import Settings

PATIENCE = 40_000


@pytest.mark.browser
def test_dashboard_follows_a_job_over_tls(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINHALL_CONFIG", "/dev/null")
    lab = Authority(tmp_path / "lab")
    files = lab.issue()
    given = Settings(
        data_dir=tmp_path / "data", tls_cert=files.cert, tls_key=files.key, auth="none"
    )
    sockets: list[str] = []
    with (
        served(create_app(given), tls=ServedCertificate(given.tls).context) as url,
        httpx.Client(verify=ssl.create_default_context(cafile=str(lab.file))) as http,
    ):
        jobs = f"{url}/api/v1/training/jobs"
        job: Any = http.post(jobs, json={"name": "over-tls", "task": {"name": "digits"}}).json()
        # Chromium has a store of authorities of its own, which a test leaves alone.
        context = browser.new_context(base_url=url, ignore_https_errors=True)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("websocket", lambda opened: sockets.append(opened.url))
        stream = re.compile("/metrics/stream/")
        with page.expect_websocket(lambda opened: bool(stream.search(opened.url))):
            page.goto(f"/jobs/{job['id']}")
        expect(page.get_by_role("heading", name="over-tls")).to_be_visible(timeout=PATIENCE)
        state = page.get_by_text(re.compile("cancelled", re.IGNORECASE)).first
        expect(state).not_to_be_visible()
        http.delete(f"{jobs}/{job['id']}")
        # What the page learns without a reload comes over its websocket.
        expect(state).to_be_visible(timeout=PATIENCE)
        context.close()
    assert [each for each in sockets if each.startswith("wss://127.0.0.1:")] == sockets != []
