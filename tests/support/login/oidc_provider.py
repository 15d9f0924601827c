"""A real OpenID provider on a free port, whose users, keys and clock a test sets."""

import contextlib
import functools
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, urlsplit

import flask
import httpx
from authlib.deprecate import AuthlibDeprecationWarning
from support.waiting import PATIENCE
from werkzeug.serving import BaseWSGIServer, make_server

with warnings.catch_warnings():
    # It uses what its own library calls outdated.
    warnings.simplefilter("ignore", AuthlibDeprecationWarning)
    import oidc_provider_mock
    from authlib.jose import RSAKey

WARNS = r"ignore:get_jwt_config\(:DeprecationWarning"
"""What the provider's thread warns of, for `pytest.mark.filterwarnings`."""


@dataclass
class TestProvider:
    """A provider that is served."""

    __test__ = False

    issuer: str
    _server: BaseWSGIServer
    _storages: list[Any]

    def set_user(self, subject: str, **claims: object) -> None:
        """Set what the provider says about a user."""
        reply = httpx.put(f"{self.issuer}/users/{subject}", json=claims)
        assert reply.status_code == 204

    def rotate_keys(self) -> None:
        """Sign with a new key from now on, and publish it alone."""
        self._storages[0].jwk = RSAKey.generate_key(is_private=True)

    def forget_nonce(self) -> None:
        """Let the codes that were given out belong to another login."""
        for code in self._storages[0]._authorization_codes.values():
            object.__setattr__(code, "nonce", "another")

    def approve(self, url: str, subject: str) -> str:
        """Log a user in at the provider's page; return where that sends the browser."""
        reply = httpx.post(url, data={"sub": subject})
        assert reply.status_code == 302, reply.text
        return reply.headers["Location"]

    def stop(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def provider(*, token_life: timedelta = timedelta(hours=1)) -> Iterator[TestProvider]:
    """Serve a provider.

    Args:
        token_life: life of its ID tokens; a negative one makes expired ones.
    """
    key = _first_key()
    with mock.patch.object(RSAKey, "generate_key", return_value=key):
        app = oidc_provider_mock.app(access_token_max_age=token_life, require_nonce=True)
    storages: list[Any] = []

    def keep_storage() -> None:
        if not storages:
            storages.append(flask.g.oidc_provider_mock_storage)

    app.before_request(keep_storage)
    server = make_server("localhost", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    made = TestProvider(f"http://localhost:{server.server_port}", server, storages)
    try:
        yield made
    finally:
        made.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()


@functools.cache
def _first_key() -> RSAKey:
    """Make the key of all providers, once: it costs more than most tests."""
    return RSAKey.generate_key(is_private=True)


def query_of(url: str) -> dict[str, str]:
    """Return the parameters of a URL."""
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
