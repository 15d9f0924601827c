"""The real application behind a real socket, served from a thread of the test's own process; and
the credential of its first admin."""

import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from support.waiting import PATIENCE, eventually

from trainhall.api.host.credentials import admin_token
from trainhall.api.host.listening import listen
from trainhall.api.host.login_name import login_name
from trainhall.api.login.first_admin import UNNAMED, stored_for_own_user
from trainhall.api.server import server_config

FIRST_ADMIN = login_name() or UNNAMED
"""As events name who holds the first credential of a coordinator."""


def bearer(folder: Path) -> dict[str, str]:
    """The header of the first admin of the coordinator with this data folder."""
    token = admin_token(folder)
    assert token is not None, f"no token in {folder}"
    return {"Authorization": f"Bearer {token}"}


def bearer_of(app: FastAPI) -> dict[str, str]:
    """The header of the first admin of a started application."""
    return bearer(app.state.settings.data_dir)


class Served(uvicorn.Server):
    """A server that leaves the process's signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def served(
    app: FastAPI, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """The URL of the application while it is served; afterwards it has ended in order.

    Meanwhile commands find the credential of its first admin, as they do of a real process.
    """
    listener = listen(host, 0)
    port = listener.getsockname()[1]
    config = server_config(app)
    # uvloop complains of handles that its loop's end leaves to the garbage collector; the tests of
    # the real process use it all the same.
    config.loop = "asyncio"
    config.load()
    config.ssl = tls
    server = Served(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        eventually("the server to listen", lambda: server.started or not thread.is_alive())
        assert server.started, f"it did not start: {app.state.startup_error}"
        url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
        token = admin_token(app.state.settings.data_dir)
        with stored_for_own_user(url, token) if token else contextlib.nullcontext():
            yield url
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listener.close()
    assert not thread.is_alive(), "the server did not end"
