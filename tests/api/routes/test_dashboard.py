"""The dashboard's files: caching, its own addresses, and a page that says how to build it."""

from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from trainhall.api.routes.site.dashboard import Dashboard


@pytest.fixture
def built(app: FastAPI, tmp_path: Path) -> Path:
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<title>the page</title>")
    (folder / "favicon.svg").write_text("<svg/>")
    (folder / "assets" / "main-3f2a.js").write_text("1")
    (folder / ".hidden").write_text("secret")
    (tmp_path / "outside.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    app.router.default = Dashboard(folder)
    return folder


async def test_its_own_addresses_are_the_page(client: httpx.AsyncClient, built: Path) -> None:
    longer = ["/" + "a/" * 2500, "/" + "é" * 200]
    for path in ("/", "/jobs/3f2a", "/nodes", "/index.html", "/a/b/c", *longer):
        reply = await client.get(path)
        assert reply.status_code == 200
        assert "the page" in reply.text
        assert reply.headers["cache-control"] == "no-cache"
        assert reply.headers["content-type"].startswith("text/html")
        assert "default-src 'self'" in reply.headers["content-security-policy"]
        assert (await client.head(path)).status_code == 200


async def test_assets_are_kept_for_ever(client: httpx.AsyncClient, built: Path) -> None:
    reply = await client.get("/assets/main-3f2a.js")
    assert reply.status_code == 200
    assert "immutable" in reply.headers["cache-control"]
    assert "javascript" in reply.headers["content-type"]
    icon = await client.get("/favicon.svg")
    assert icon.headers["cache-control"] == "no-cache"
    assert icon.headers["content-type"] == "image/svg+xml"


async def test_speedscope_reads_only_what_it_is_given(
    client: httpx.AsyncClient, built: Path
) -> None:
    (built / "speedscope").mkdir()
    (built / "speedscope" / "index.html").write_text("<title>speedscope</title>")
    reply = await client.get("/speedscope/index.html")
    policy = dict(
        rule.split(" ", 1) for rule in reply.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "blob:"
    assert policy["script-src"] == "'self' 'wasm-unsafe-eval'"
    assert policy["frame-ancestors"] == "'self'"
    for path in ("/", "/speedscope", "/jobs/speedscope/"):
        page = await client.get(path)
        assert "the page" in page.text
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


NOT_THERE = ["/assets/gone-1.js", "/missing.css", "/.hidden", "/link.txt", "/%2e%2e/outside.txt",
     "/assets/..%2f..%2foutside.txt", "/api/v1/x", "/api", "/assets/%00.js",
     "/" + "x" * 5000 + ".js", "/" + "é" * 200 + ".js", "/" + "a/" * 2500 + "x.js"]  # fmt: skip


async def test_missing_dashboard_file_is_not_found(client: httpx.AsyncClient, built: Path) -> None:
    for path in NOT_THERE:
        reply = await client.get(path)
        assert reply.status_code == 404, path
        assert "secret" not in reply.text


async def test_missing_build_shows_how_to_build(
    app: FastAPI, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    app.router.default = Dashboard(tmp_path / "not-built")
    reply = await client.get("/")
    assert reply.status_code == 200
    assert "npm run build" in reply.text
    assert reply.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {}, 200),
        ("/docs", {}, 200),
        ("/openapi.json", {}, 200),
        ("/healthz", {}, 200),
        ("/metrics", {}, 200),
        ("/api/v1/training/jobs", {}, 200),
        ("/api/v1/training/jobs/none", {}, 404),
        ("/api/v1/training/jobs?limit=x", {}, 422),
        ("/api/v1/training/jobs", {"Host": "evil.example"}, 403),
    ],
)
async def test_every_answer_is_safe_in_a_browser(
    client: httpx.AsyncClient, path: str, headers: dict[str, str], status: int
) -> None:
    reply = await client.get(path, headers=headers)
    assert reply.status_code == status
    assert reply.headers["x-content-type-options"] == "nosniff"
    policy = reply.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "script-src" not in policy
    assert policy.startswith(("default-src 'self'", "default-src 'none'"))
