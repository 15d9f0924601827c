"""What an agent verifies its coordinator with, from its join token on."""

import asyncio
import json
import logging
import os
import signal
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.cluster.agent_process import agent_process
from support.cluster.web import served
from support.nodes.certificates import Authority, Files, self_signed
from support.waiting import eventually

from trainhall.api.app import create_app
from trainhall.api.host.tls import ServedCertificate
from trainhall.api.settings import Settings
from trainhall.cluster.agent.coordinator_link.http_api import CoordinatorApi, UnavailableError
from trainhall.cluster.agent.coordinator_link.trust import Trust
from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.options import (
    AgentError,
    AgentOptions,
    JoinRefusedError,
    OptionError,
    UntrustedCoordinatorError,
)
from trainhall.cluster.tls import Anchor
from trainhall.cluster.wire.join_token import JoinToken
from trainhall.cluster.wire.protocol import JoinReply, JoinRequest


@pytest.fixture(autouse=True)
def no_settings_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("TRAINHALL_") or n == "DATABASE_URL"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRAINHALL_CONFIG", os.devnull)


@pytest.fixture
def lab(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "lab")


@contextmanager
def coordinator(tmp_path: Path, files: Files) -> Iterator[str]:
    given = Settings(
        data_dir=tmp_path / "data", tls_cert=files.cert, tls_key=files.key, auth="none"
    )
    with served(create_app(given), tls=ServedCertificate(given.tls).context) as url:
        yield url


def options(url: str, tmp_path: Path, **more: Any) -> AgentOptions:
    return AgentOptions(coordinator=url, data_dir=tmp_path / "agent", **more)


def pinning(fingerprint: str) -> str:
    return str(JoinToken("thj_unknown", fingerprint))


async def ask(trust: Trust, given: AgentOptions) -> None:
    """Send a token that nobody made, once the coordinator is trusted.

    Raises:
        JoinRefusedError: the coordinator got it.
        UnavailableError, UntrustedCoordinatorError: it was not sent.
    """
    await trust.establish()
    api = CoordinatorApi(given, trust)
    try:
        await api.join(
            JoinRequest(join_token="x", name="x", address="", agent_version="1", devices=[])
        )
    finally:
        await api.close()


def replaced(lab: Authority, what: str) -> tuple[Files, str]:
    """The certificate that is served by now, and what is said of it."""
    folder = lab.folder.parent
    made: dict[str, Callable[[], tuple[Files, str]]] = {
        "renewed": lambda: (lab.issue(), ""),
        "other authority": lambda: (
            Authority(folder / "other", "A lab").issue(), "is not from the authority",
        ),
        "self-signed": lambda: (
            self_signed(folder / "own", "127.0.0.1", is_ca=True), "is not from the authority",
        ),
        "expired": lambda: (lab.issue(ends=-timedelta(days=1)), "has expired"),
        "other name": lambda: (lab.issue("lab.example"), "is not for the name '127.0.0.1'"),
    }  # fmt: skip
    return made[what]()


@pytest.mark.parametrize(
    "what", ["renewed", "other authority", "self-signed", "expired", "other name"]
)
async def test_pinned_authority_is_kept(tmp_path: Path, lab: Authority, what: str) -> None:
    with coordinator(tmp_path, lab.issue()) as url:
        given = options(url, tmp_path, token=pinning(lab.fingerprint))
        trust = Trust(given)
        with pytest.raises(JoinRefusedError):
            await ask(trust, given)
        assert trust.pinned == Anchor(lab.file.read_text())
    files, message = replaced(lab, what)
    with coordinator(tmp_path, files) as url:
        later = options(url, tmp_path)
        again = Trust(later, trust.pinned)
        if not message:
            with pytest.raises(JoinRefusedError):
                await ask(again, later)
            return
        with pytest.raises(UnavailableError, match=message) as refused:
            await ask(again, later)
        if "authority" in message:
            assert lab.fingerprint in str(refused.value)
            assert "`trainhall nodes add`" in str(refused.value), "what to do"


async def test_token_is_not_sent_to_another(tmp_path: Path, lab: Authority) -> None:
    other = Authority(tmp_path / "other", "A lab")
    with coordinator(tmp_path, other.issue()) as url:
        given = options(url, tmp_path, token=pinning(lab.fingerprint))
        with pytest.raises(UntrustedCoordinatorError, match=lab.fingerprint):
            await ask(Trust(given), given)


async def test_pinned_certificate_may_have_any_name(tmp_path: Path) -> None:
    own = self_signed(tmp_path / "own", "elsewhere.example")
    with coordinator(tmp_path, own) as url:
        given = options(url, tmp_path, token=pinning(own.fingerprint))
        trust = Trust(given)
        with pytest.raises(JoinRefusedError):
            await ask(trust, given)
        assert trust.pinned is not None
        assert trust.pinned.is_own
        again = Trust(options(url, tmp_path), trust.pinned)
        with pytest.raises(JoinRefusedError):
            await ask(again, given)


async def test_new_token_replaces_what_was_pinned(
    tmp_path: Path, lab: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Anchor(lab.file.read_text())
    other = Authority(tmp_path / "other", "A lab")
    with coordinator(tmp_path, other.issue()) as url:
        given = options(url, tmp_path, token=pinning(other.fingerprint))
        trust = Trust(given, kept)
        await trust.establish()
        assert trust.replaces_kept
        assert trust.pinned == Anchor(other.file.read_text())
        # An old token of another certificate is left where the agent is started.
        stale = options(url, tmp_path, token=pinning(lab.fingerprint))
        trust = Trust(stale, Anchor(other.file.read_text()))
        with caplog.at_level(logging.WARNING), pytest.raises(JoinRefusedError):
            await ask(trust, stale)
        assert not trust.replaces_kept
        assert "token_not_trusted" in caplog.text


async def test_authority_that_is_given_counts_alone(tmp_path: Path, lab: Authority) -> None:
    other = Authority(tmp_path / "other", "A lab")
    kept = Anchor(other.file.read_text())
    with coordinator(tmp_path, lab.issue(chain=False)) as url:
        for ca, reaches in ((lab.file, True), (other.file, False)):
            given = options(url, tmp_path, tls_ca=str(ca))
            error = JoinRefusedError if reaches else UnavailableError
            with pytest.raises(error):
                await ask(Trust(given, kept), given)
        unknown = options(url, tmp_path)
        with pytest.raises(UnavailableError, match="no authority that this host trusts"):
            await ask(Trust(unknown), unknown)


async def test_own_certificate_is_read_again(tmp_path: Path, lab: Authority) -> None:
    files = lab.issue("lab.example")
    with coordinator(tmp_path, files) as url:
        given = options(url, tmp_path, tls_own=files.cert)
        trust = Trust(given)
        with pytest.raises(JoinRefusedError):
            await ask(trust, given)
    lab.issue("lab.example")
    with coordinator(tmp_path, files) as url:
        given = options(url, tmp_path, tls_own=files.cert)
        api = CoordinatorApi(given, trust)
        with pytest.raises(JoinRefusedError):
            await api.join(
                JoinRequest(join_token="x", name="x", address="", agent_version="1", devices=[])
            )
        await api.close()
        stranger = options(url, tmp_path, tls_own=lab.issue(file="other").cert)
        with pytest.raises(UnavailableError, match="is not from the authority"):
            await ask(Trust(stranger), stranger)


def test_unusable_trust_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="would send it without TLS; use https"):
        Trust(options("http://lab:8000", tmp_path, token=pinning("ab" * 32)))
    with pytest.raises(OptionError, match="the join token is damaged"):
        Trust(options("https://lab:8000", tmp_path, token=pinning("ab")))
    missing = options("https://lab:8000", tmp_path, tls_own=tmp_path / "nothing.pem")
    with pytest.raises(AgentError, match="cannot be used"):
        asyncio.run(Trust(missing).establish())


def test_pin_is_kept_beside_the_credential(tmp_path: Path) -> None:
    url, pin = "https://lab:8000", Anchor("PEM", is_own=True)
    data_dir = DataDir(tmp_path)
    data_dir.write_credential(url, JoinReply(node_id="a", credential="b"), pin)
    file = tmp_path / "agent.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert data_dir.read_pin(url) == pin
    assert data_dir.read_credential(url) == JoinReply(node_id="a", credential="b")
    assert data_dir.read_pin("https://other:8000") is None
    file.write_text(json.dumps(json.loads(file.read_text()) | {"tls": {"pem": "PEM"}}))
    with pytest.raises(AgentError, match=r"pinned certificate .* cannot be read"):
        data_dir.read_pin(url)
    data_dir.write_credential(url, JoinReply(node_id="a", credential="b"))
    assert data_dir.read_pin(url) is None


@pytest.mark.processes
def test_agent_over_tls_refuses_another_coordinator(tmp_path: Path, lab: Authority) -> None:
    files = lab.issue()
    given = Settings(
        data_dir=tmp_path / "data", tls_cert=files.cert, tls_key=files.key, auth="none"
    )
    certificate = ServedCertificate(given.tls)
    context = ssl.create_default_context(cafile=str(lab.file))
    with (
        served(create_app(given), tls=certificate.context) as url,
        httpx.Client(base_url=f"{url}/api/v1", verify=context) as http,
    ):
        token = http.post("/cluster/nodes", json={}).json()["join_token"]

        def state() -> str:
            return str(http.get("/cluster/nodes").json()["items"][0]["state"])

        with agent_process(tmp_path / "host", url, token) as agent:

            def connections() -> int:
                return agent.output().count("connected coordinator")

            eventually("the node", lambda: state() == "ready")
            eventually("the first answer", lambda: connections() == 1)
            kept = json.loads((agent.data_dir / "agent.json").read_text())
            assert kept["tls"] == {"pem": lab.file.read_text(), "is_own": False}
            agent.end(signal.SIGTERM)
            # From here on someone else answers, whose certificate names this host, too.
            other = Authority(tmp_path / "other", "A lab").issue()
            certificate.context.load_cert_chain(other.cert, other.key)
            agent.start()
            eventually("a refusal", lambda: "is not from the authority" in agent.output())
            assert lab.fingerprint in agent.output()
            assert connections() == 1
            # And now the right one, with a renewed certificate.
            renewed = lab.issue()
            certificate.context.load_cert_chain(renewed.cert, renewed.key)
            eventually("the node again", lambda: connections() == 2)
