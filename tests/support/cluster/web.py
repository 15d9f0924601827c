"""The real application behind a real socket, served from a thread of the test's own process."""

import contextlib
import threading
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI
from support.waiting import eventually

from trainhall.api.host.listening import listen
from trainhall.api.server import server_config


class Served(uvicorn.Server):
    """A server that leaves the process's signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def served(app: FastAPI, host: str = "127.0.0.1") -> Iterator[str]:
    """The URL of the application while it is served; afterwards it has ended in order."""
    listener = listen(host, 0)
    port = listener.getsockname()[1]
    config = server_config(app)
    # uvloop complains of handles that its loop's end leaves to the garbage collector; the tests of
    # the real process use it all the same.
    config.loop = "asyncio"
    server = Served(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        eventually("the server to listen", lambda: server.started or not thread.is_alive())
        assert server.started, f"it did not start: {app.state.startup_error}"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
    assert not thread.is_alive(), "the server did not end"
