"""Clients of a coordinator over TLS, with real certificates."""

import asyncio
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from support.cluster.agent_process import until
from support.cluster.web import served
from support.nodes.certificates import Authority, Files, self_signed

import trainhall
from trainhall.api.app import create_app
from trainhall.api.host import tls
from trainhall.api.host.tls import CertificateError, ServedCertificate, Tls
from trainhall.api.settings import Settings
from trainhall.cli.base import running
from trainhall.cli.base.client import Client
from trainhall.cli.base.errors import UnreachableError, UsageError
from trainhall.cluster.tls import CA_PATH, CA_VARIABLE, own_anchor
from trainhall.cluster.wire.join_token import JoinToken

API = "/api/v1"


@pytest.fixture
def lab(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "lab")


@contextmanager
def coordinator(tmp_path: Path, files: Files, **settings: Any) -> Iterator[str]:
    """A coordinator that serves this certificate."""
    given = Settings(
        data_dir=tmp_path / "data", tls_cert=files.cert, tls_key=files.key, auth="none", **settings
    )
    with served(create_app(given), tls=ServedCertificate(given.tls).context) as url:
        yield url


def jobs(url: str) -> list[Any]:
    with Client(url, attempts=1) as client:
        return list(client.items("/training/jobs"))


def test_command_trusts_the_authority_that_was_set(
    tmp_path: Path, lab: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    for chain in (True, False):
        with coordinator(tmp_path, lab.issue(chain=chain)) as url:
            monkeypatch.setenv(CA_VARIABLE, str(lab.file))
            assert jobs(url) == []
            with trainhall.Client(url) as hall:
                assert list(hall.jobs()) == []
            config = tmp_path / "trainhall.toml"
            config.write_text(f'tls_ca = "{lab.file}"')
            monkeypatch.delenv(CA_VARIABLE)
            with pytest.raises(UnreachableError, match=f"no authority .* set {CA_VARIABLE}"):
                jobs(url)
            monkeypatch.setenv("TRAINHALL_CONFIG", str(config))
            assert jobs(url) == []
            monkeypatch.setenv("TRAINHALL_CONFIG", os.devnull)


def issued(lab: Authority, what: str) -> Files:
    other = Authority(lab.folder / "other", "A lab")  # of the same name
    return {
        "of another authority": lambda: other.issue(),
        "expired": lambda: lab.issue(ends=-timedelta(days=1)),
        "for another name": lambda: lab.issue("lab.example", "10.0.0.7"),
    }[what]()


@pytest.mark.parametrize(
    ("what", "message"),
    [("of another authority", "is not from the authority that is trusted here"),
     ("expired", "has expired: renew it"),
     ("for another name", "is not for the name '127.0.0.1'")],
)  # fmt: skip
@pytest.mark.parametrize("by", ["file", "fingerprint"])
def test_command_refuses_certificate(
    tmp_path: Path, lab: Authority, monkeypatch: pytest.MonkeyPatch, what: str, message: str,
    by: str,
) -> None:  # fmt: skip
    given = str(lab.file) if by == "file" else f"sha256:{lab.fingerprint}"
    monkeypatch.setenv(CA_VARIABLE, given)
    if by == "fingerprint" and what == "of another authority":
        message = f"neither it nor its authority has the SHA-256 {lab.fingerprint}"
    with (
        coordinator(tmp_path, issued(lab, what)) as url,
        pytest.raises((UnreachableError, UsageError), match=message),
    ):
        jobs(url)


def test_command_trusts_its_own_users_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Settings(data_dir=tmp_path / "data", tls_self_signed=True, auth="none")
    monkeypatch.setattr(running, "data_dir_of", lambda _url: given.data_dir)
    with served(create_app(given), tls=ServedCertificate(given.tls).context) as url:
        assert jobs(url) == []
        # Another user's process, which root sees, may name a folder of its own.
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(UnreachableError, match="no authority that this host trusts"):
            jobs(url)


@pytest.mark.parametrize("is_ca", [False, True])
def test_self_signed_certificate_is_trusted_by_its_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ca: bool
) -> None:
    """Whatever it is named for: who has its key is the coordinator."""
    first = self_signed(tmp_path / "a", "elsewhere.example", is_ca=is_ca)
    second = self_signed(tmp_path / "b", "elsewhere.example", is_ca=is_ca)
    monkeypatch.setenv(CA_VARIABLE, f"sha256:{first.fingerprint.upper()}")
    with coordinator(tmp_path, first) as url:
        assert jobs(url) == []
    with (
        coordinator(tmp_path, second) as url,
        pytest.raises(UsageError, match=first.fingerprint),
    ):
        jobs(url)


def test_scheme_that_is_not_served_is_named(
    tmp_path: Path, lab: Authority, make_app: Callable[..., FastAPI]
) -> None:
    with served(make_app()) as url, pytest.raises(UnreachableError, match="does not speak TLS"):
        jobs(url.replace("http:", "https:"))


@pytest.mark.parametrize(
    ("given", "message"),
    [("sha256:12", "is not the fingerprint of a certificate"),
     ("/nowhere/ca.pem", "cannot be used as TRAINHALL_TLS_CA: .*No such file"),
     (os.devnull, "holds no certificate in PEM")],
)  # fmt: skip
def test_wrong_authority_is_a_wrong_input(
    monkeypatch: pytest.MonkeyPatch, given: str, message: str
) -> None:
    monkeypatch.setenv(CA_VARIABLE, given)
    with pytest.raises(UsageError, match=message):
        Client("https://127.0.0.1:1")
    Client("http://127.0.0.1:1").close()


def token(url: str, trusted: Path) -> tuple[JoinToken, str]:
    """A join token, and the command that it is in."""
    context = ssl.create_default_context(cafile=str(trusted))
    with httpx.Client(verify=context) as http:
        node = http.post(f"{url}{API}/cluster/nodes", json={}).json()
    assert node["join_token"] in node["command"]
    return JoinToken.parse(node["join_token"]), node["command"]


def test_join_token_carries_what_is_to_be_pinned(tmp_path: Path, lab: Authority) -> None:
    with coordinator(tmp_path, lab.issue()) as url:
        found, command = token(url, lab.file)
        assert found.secret.startswith("thj_")
        assert found.fingerprint == lab.fingerprint
        assert f"--coordinator {url}" in command
        context = ssl.create_default_context(cafile=str(lab.file))
        served_ca = httpx.get(url + CA_PATH, verify=context)
        assert served_ca.text == lab.file.read_text()
    # Without the authority in the file it may be a public one.
    with coordinator(tmp_path, lab.issue(chain=False)) as url:
        assert token(url, lab.file)[0].fingerprint is None
        assert httpx.get(url + CA_PATH, verify=context).status_code == 404
    with coordinator(tmp_path, lab.issue(chain=False), public_ca=lab.file) as url:
        assert token(url, lab.file)[0].fingerprint == lab.fingerprint
    own = self_signed(tmp_path / "own", "127.0.0.1", is_ca=True)
    with coordinator(tmp_path, own) as url:
        assert token(url, own.cert)[0].fingerprint == own.fingerprint


async def test_join_token_of_plain_http_pins_nothing(client: httpx.AsyncClient) -> None:
    node = (await client.post(f"{API}/cluster/nodes", json={})).json()
    assert JoinToken.parse(node["join_token"]).fingerprint is None
    assert (await client.get(CA_PATH)).status_code == 404


async def test_proxy_with_its_own_authority_is_pinned(
    make_app: Callable[..., FastAPI], lab: Authority
) -> None:
    app = make_app(public_url="https://lab.example", public_ca=lab.file, auth="none")
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://lab.example") as client:
            node = (await client.post(f"{API}/cluster/nodes", json={})).json()
    assert JoinToken.parse(node["join_token"]).fingerprint == lab.fingerprint
    assert "--coordinator https://lab.example" in node["command"]


def test_renewed_certificate_is_served_from_now_on(tmp_path: Path, lab: Authority) -> None:
    files = lab.issue()
    mine = Tls(tmp_path, files.cert, files.key)
    served_certificate = ServedCertificate(mine)
    context = ssl.create_default_context(cafile=str(lab.file))
    app = create_app(Settings(data_dir=tmp_path / "data", auth="none"))

    def own(url: str) -> str:
        host, port = url.removeprefix("https://").split(":")
        return ssl.get_server_certificate((host, int(port)))

    with (
        served(app, tls=served_certificate.context) as url,
        httpx.Client(verify=context) as kept,
    ):
        assert kept.get(f"{url}/healthz").status_code == 200
        before = own(url)
        assert not served_certificate._refresh(mine.current())
        # A certificate without its key, as between two renames.
        key = files.key.read_bytes()
        lab.issue()
        files.key.write_bytes(key)
        with pytest.raises(CertificateError, match="the key is of another certificate"):
            served_certificate._refresh(mine.current())
        assert own(url) == before, "the old one is served on"
        lab.issue()
        assert served_certificate._refresh(mine.current())
        assert own(url) != before
        assert kept.get(f"{url}/healthz").status_code == 200
        with httpx.Client(verify=context) as new:
            assert new.get(f"{url}/healthz").status_code == 200


def test_own_certificate_is_known_by_its_file(tmp_path: Path, lab: Authority) -> None:
    """As `up` knows it, whatever names it has."""
    files = lab.issue("lab.example")
    other = lab.issue("lab.example", file="other")
    with coordinator(tmp_path, files) as url:
        with Client(url, anchor=own_anchor(files.cert)) as client:
            assert list(client.items("/training/jobs")) == []
        with (
            Client(url, anchor=own_anchor(other.cert), attempts=1) as client,
            pytest.raises(UnreachableError, match="not from the authority that is trusted"),
        ):
            client.get("/training/jobs")


@pytest.mark.parametrize(
    ("names", "message"),
    [({"tls_cert": "x"}, "tls-cert and tls-key need each other"),
     ({"tls_cert": "x", "tls_key": "x", "tls_self_signed": True}, "give it or tls-cert"),
     ({"trusted_proxies": "*"}, "neither an address nor a network"),
     ({"trusted_proxies": "10.0.0.1, lab"}, "'lab' is neither")],
)  # fmt: skip
def test_settings_that_contradict_are_refused(names: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**names)


@pytest.mark.parametrize(
    ("proxies", "expected"),
    [("", "127.0.0.1"), ("127.0.0.0/8", "192.0.2.9"), ("10.0.0.1", "127.0.0.1")],
)
def test_forwarded_headers_count_from_trusted_proxies(
    tmp_path: Path, proxies: str, expected: str
) -> None:
    app = create_app(
        Settings(data_dir=tmp_path, trusted_proxies=proxies, public_url="https://lab.example")
    )
    seen: list[tuple[str, str]] = []
    inner = app.router.default

    async def spy(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["client"][0], scope["scheme"]))
        await inner(scope, receive, send)

    app.router.default = spy
    forwarded = {
        "Host": "lab.example", "X-Forwarded-For": "192.0.2.9", "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "evil.example",
    }  # fmt: skip
    with served(app) as url:
        assert httpx.get(f"{url}/jobs", headers=forwarded).status_code == 200
    assert seen == [(expected, "https" if expected == "192.0.2.9" else "http")]


async def test_coordinator_looks_for_a_renewed_certificate(
    tmp_path: Path, lab: Authority, monkeypatch: pytest.MonkeyPatch, logged: list[Any]
) -> None:
    monkeypatch.setattr(tls, "CHECK_SECONDS", 0.01)
    files = lab.issue()
    certificate = ServedCertificate(Tls(tmp_path, files.cert, files.key))

    def events() -> list[str]:
        return [entry["event"] for entry in logged]

    looking = asyncio.create_task(certificate.keep_current())
    files.key.unlink()
    await until("a word of it", lambda: events() == ["certificate_not_renewed"])
    lab.issue()
    await until("the new one", lambda: "certificate_renewed" in events())
    assert events() == ["certificate_not_renewed", "certificate_renewed"], "each is logged once"
    looking.cancel()
