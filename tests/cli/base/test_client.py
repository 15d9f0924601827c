"""The HTTP client against a server that misbehaves."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import trainhall.client
from trainhall.cli.base.client import Client
from trainhall.cli.base.errors import (
    CliError,
    NotAllowedError,
    NotFoundError,
    UnreachableError,
    UsageError,
    WrongStateError,
)
from trainhall.cli.jobs import follow

Answer = tuple[int, Any] | None
"""A status and a body, JSON unless it is bytes; None breaks the connection."""


class Server:
    """Answers what the test says and remembers what it was asked."""

    def __init__(self, answer: Callable[[int, str, str], Answer]) -> None:
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                self.rfile.read(length)
                outer.requests.append((self.command, self.path, dict(self.headers)))
                given = answer(len(outer.requests), self.command, self.path)
                if given is None:
                    self.close_connection = True
                    return
                status, body = given
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                if status == 429:
                    self.send_header("Retry-After", body["retry"])
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


Serve = Callable[[Callable[[int, str, str], Answer]], Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Server] = []

    def start(answer: Callable[[int, str, str], Answer]) -> Server:
        servers.append(Server(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def silent(serve: Serve) -> Iterator[Server]:
    """Answers nothing as long as the test goes on."""
    ended = threading.Event()

    def answer(n: int, method: str, path: str) -> Answer:
        ended.wait(60)
        return None

    yield serve(answer)
    ended.set()


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (401, NotAllowedError, 3),
        (403, NotAllowedError, 3),
        (404, NotFoundError, 1),
        (409, WrongStateError, 5),
        (413, UsageError, 2),
        (422, UsageError, 2),
        (500, CliError, 1),
    ],
)
def test_problem_maps_to_an_exit_code(
    serve: Serve, status: int, kind: type[CliError], code: int
) -> None:
    body = {
        "title": "No",
        "detail": "the reason",
        "errors": [{"field": "training.steps", "message": "must be above 0", "value": -1}],
    }
    server = serve(lambda n, method, path: (status, body))
    with Client(server.url, token="of somebody") as client, pytest.raises(kind) as caught:
        client.get("/anything")
    assert "the reason" in caught.value.message
    assert caught.value.exit_code == code
    assert caught.value.details == ["training.steps: must be above 0 (given: -1)"]


def test_non_problem_error_response_is_shown(serve: Serve) -> None:
    server = serve(lambda n, method, path: (502, "upstream"))
    with Client(server.url) as client, pytest.raises(CliError, match=r"502.*upstream"):
        client.get("/anything")


def test_reads_are_tried_again_when_the_connection_breaks(serve: Serve) -> None:
    server = serve(lambda n, method, path: None if n < 3 else (200, {"fine": True}))
    with Client(server.url) as client:
        assert client.get("/anything") == {"fine": True}
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [502, 503, 504])
def test_reads_are_tried_again_while_it_cannot_serve(serve: Serve, status: int) -> None:
    server = serve(lambda n, method, path: (status, {}) if n < 3 else (200, {"fine": True}))
    with Client(server.url) as client:
        assert client.get("/anything") == {"fine": True}
    assert len(server.requests) == 3


def test_refused_request_waits_for_its_place(serve: Serve) -> None:
    refusal = {"retry": "0.01", "detail": "too many"}
    server = serve(lambda n, method, path: (429, refusal) if n < 3 else (200, {"fine": True}))
    with Client(server.url) as client:
        assert client.request("POST", "/anything") == {"fine": True}
    assert len(server.requests) == 3
    server = serve(lambda n, method, path: (429, {**refusal, "retry": "60"}))
    with Client(server.url) as client, pytest.raises(CliError, match="429: too many"):
        client.request("POST", "/anything")
    assert len(server.requests) == 1


def test_refused_file_is_sent_again_from_its_beginning(serve: Serve, tmp_path: Path) -> None:
    refusal = {"retry": "0.01", "detail": "too many"}
    server = serve(lambda n, method, path: (429, refusal) if n < 2 else (200, {"fine": True}))
    (tmp_path / "file").write_bytes(b"content")
    with Client(server.url) as client, (tmp_path / "file").open("rb") as file:
        assert client.send_raw("PUT", "/anything", content=file) == {"fine": True}
    assert len(server.requests) == 2


def test_unavailable_coordinator_counts_as_unreachable(serve: Serve) -> None:
    body = {"detail": "the database is unavailable; try again in a moment"}
    server = serve(lambda n, method, path: (503, body))
    with Client(server.url, attempts=2) as client:
        with pytest.raises(UnreachableError) as caught:
            client.get("/anything")
        assert caught.value.message == f"the coordinator answered 503: {body['detail']}"
        assert len(server.requests) == 2
        # Sent once: what it did before it failed is not known.
        with pytest.raises(UnreachableError, match="503: the database"):
            client.request("PUT", "/training/jobs/x/pause")
    assert len(server.requests) == 3


def test_other_failures_are_not_tried_again(serve: Serve) -> None:
    server = serve(lambda n, method, path: (500, {"detail": "its log tells more"}))
    with Client(server.url) as client, pytest.raises(CliError, match="its log tells more"):
        client.get("/anything")
    assert len(server.requests) == 1


def test_slow_response_is_reported_as_timeout(silent: Server) -> None:
    with Client(silent.url, attempts=1, timeout=0.2) as client:
        with pytest.raises(UnreachableError) as caught:
            client.get("/anything")
        assert caught.value.message == f"the coordinator at {silent.url} did not answer in time"


def test_deadline_holds_where_nothing_is_answered(silent: Server) -> None:
    with (
        Client(silent.url, timeout=20) as client,
        pytest.raises(UnreachableError, match="did not answer in time"),
    ):
        client.request("GET", "/anything", deadline=time.monotonic())
    # Without a deadline it would be four tries of 20 s each.
    assert len(silent.requests) == 1


def test_wait_times_out_without_a_response(silent: Server) -> None:
    with trainhall.client.Client(silent.url) as client:
        with pytest.raises(TimeoutError, match="did not answer about job 4f2a"):
            client.wait("4f2a", timeout=0.1)
        with pytest.raises(UnreachableError):
            follow.wait(client._rest, "4f2a", follow.deadline_after(0.1))
    # As it is asked for by its id, without four tries of 30 s each.
    assert len(silent.requests) == 2


def test_verification_takes_as_long_as_it_takes(serve: Serve) -> None:
    def answer(n: int, method: str, path: str) -> Answer:
        assert (method, path) == ("POST", "/api/v1/checkpoints/5e60/verify")
        # Longer than any other request may take; nothing can end that wait early.
        time.sleep(0.5)
        return 200, {"good": True}

    server = serve(answer)
    with Client(server.url, attempts=1, timeout=0.2) as client:
        assert client.verify("5e60") == {"good": True}


def test_other_web_server_is_recognised(serve: Serve) -> None:
    page = b"<!doctype html><title>A page</title>"
    server = serve(lambda n, method, path: (200, page))
    for ask in (Client.is_simulated, lambda client: client.get("/training/jobs")):
        with Client(server.url) as client, pytest.raises(CliError) as caught:
            ask(client)
        assert caught.value.message == (
            f"{server.url} is not a Trainhall coordinator: its answer is not JSON"
        )
        assert caught.value.exit_code == 1


@pytest.mark.parametrize("answer", [[], "ok", 3])
def test_non_object_response_is_another_server(serve: Serve, answer: Any) -> None:
    server = serve(lambda n, method, path: (200, answer))
    with Client(server.url) as client:
        for ask in (lambda: client.job("4f2a"), lambda: list(client.items("/training/jobs"))):
            with pytest.raises(CliError, match=r"not a Trainhall coordinator.* not a JSON object"):
                ask()


def test_list_without_items_is_another_servers(serve: Serve) -> None:
    server = serve(lambda n, method, path: (200, {"status": "ok"}))
    with Client(server.url) as client, pytest.raises(CliError, match="not a Trainhall coordinator"):
        list(client.items("/training/jobs"))


def test_other_servers_health_is_not_simulated(serve: Serve) -> None:
    server = serve(lambda n, method, path: (200, ["ok"]))
    with Client(server.url) as client:
        assert client.is_simulated() is False


def test_possibly_received_command_is_not_repeated(serve: Serve) -> None:
    server = serve(lambda n, method, path: None)
    with Client(server.url) as client, pytest.raises(UnreachableError):
        client.request("PUT", "/training/jobs/x/pause")
    assert len(server.requests) == 1


@pytest.mark.parametrize("create", [Client.submit, Client.create_experiment])
def test_creation_is_repeated_under_one_key(
    serve: Serve, create: Callable[[Client, dict[str, Any]], Any]
) -> None:
    server = serve(lambda n, method, path: None if n < 3 else (201, {"id": "abc"}))
    with Client(server.url) as client:
        assert create(client, {"name": "x"})["id"] == "abc"
        create(client, {"name": "x"})
    keys = [headers["Idempotency-Key"] for _, _, headers in server.requests]
    assert keys[0] == keys[1] == keys[2] != keys[3]


def test_nothing_listens() -> None:
    with (
        Client("http://127.0.0.1:9", attempts=1) as client,
        pytest.raises(UnreachableError) as caught,
    ):
        client.get("/anything")
    assert "http://127.0.0.1:9" in caught.value.message
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://[", "http://a b"])
def test_malformed_url_is_a_usage_error(url: str) -> None:
    with pytest.raises((UsageError, UnreachableError)), Client(url, attempts=1) as client:
        client.get("/anything")


def test_url_without_a_scheme_names_no_option() -> None:
    with pytest.raises(
        UsageError, match=r"the URL '127\.0\.0\.1:1' is not an address; use one like"
    ):
        Client("127.0.0.1:1")


@pytest.mark.parametrize("url", ["http://127.0.0.1:80a", "http://[::1", "http://a\nb"])
def test_mistyped_address_is_reported(url: str) -> None:
    with pytest.raises(UsageError, match="is not an address"), Client(url, attempts=1) as client:
        client.get("/anything")


def test_pages_are_followed_to_the_last(serve: Serve) -> None:
    pages = {None: ([1, 2], "b"), "b": ([3, 4], "c"), "c": ([5], None)}

    def answer(n: int, method: str, path: str) -> Answer:
        cursor = path.rsplit("cursor=", 1)[1] if "cursor=" in path else None
        items, following = pages[cursor]
        return 200, {"items": items, "next_cursor": following}

    server = serve(answer)
    with Client(server.url) as client:
        assert list(client.items("/things")) == [1, 2, 3, 4, 5]
        assert list(client.items("/things", limit=3)) == [1, 2, 3]


@pytest.fixture
def jobs(serve: Serve) -> Server:
    ids = ["aa11", "aa22", "bb33"]

    def answer(n: int, method: str, path: str) -> Answer:
        name = path.removeprefix("/api/v1/training/jobs").split("?")[0].strip("/")
        if not name:
            return 200, {"items": [{"id": i, "name": f"job {i}"} for i in ids], "next_cursor": None}
        return (200, {"id": name}) if name in ids else (404, {"detail": "no"})

    return serve(answer)


def test_job_is_found_by_a_unique_beginning(jobs: Server) -> None:
    with Client(jobs.url) as client:
        assert client.job_id("aa11") == "aa11"
        assert client.job_id("bb") == "bb33"
        # Of a long list only those come that may be meant.
        path = "/api/v1/training/jobs?limit=200&search=bb&query=archived%3Ayes%2Cno"
        assert jobs.requests[-1][1] == path
        with pytest.raises(NotFoundError, match="'cc'"):
            client.job_id("cc")
        with pytest.raises(UsageError, match="aa11, aa22"):
            client.job_id("aa")


@pytest.mark.parametrize("reference", ["../nodes", "a/b", "a?b", "%2e%2e"])
def test_id_cannot_climb_out_of_its_path(jobs: Server, reference: str) -> None:
    """It may be a name all the same, which the list is searched for."""
    with Client(jobs.url) as client:
        with pytest.raises(NotFoundError):
            client.job(reference)
        with pytest.raises(UsageError):
            client.checkpoint(reference)
    paths = {path.partition("?")[0] for _, path, _ in jobs.requests}
    assert paths == {"/api/v1/training/jobs", "/api/v1/experiments"}


def test_single_wrong_field_is_reported_once(serve: Serve) -> None:
    body = {
        "detail": "state.0: must be a state",
        "errors": [{"field": "state.0", "message": "must be a state", "value": "bogus"}],
    }
    server = serve(lambda n, method, path: (422, body))
    with Client(server.url) as client, pytest.raises(UsageError) as caught:
        client.get("/anything")
    assert caught.value.message == "state.0: must be a state (given: bogus)"
    assert caught.value.details == []


THINGS = [
    {"id": "aa11", "name": "digits"},
    {"id": "aa22", "name": "five hundred trials"},
    {"id": "bb33", "name": "aa"},
    {"id": "cc44", "name": "twice"},
    {"id": "cc55", "name": "twice"},
]


@pytest.fixture
def holds_things(serve: Serve) -> Server:
    def answer(n: int, method: str, path: str) -> Answer:
        address = path.partition("?")[0]
        if not address.endswith(("/jobs", "/experiments")):
            found = [thing for thing in THINGS if thing["id"] == address.rpartition("/")[2]]
            return (200, found[0]) if found else (404, {"title": "Not found", "detail": "no"})
        return 200, {"items": THINGS, "next_cursor": None}

    return serve(answer)


@pytest.mark.parametrize("kind", ["job", "experiment"])
@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("aa22", "aa22"),
        ("bb", "bb33"),
        ("digits", "aa11"),
        ("five hundred trials", "aa22"),
        ("aa", "bb33"),  # a name wins over a prefix
    ],
)
def test_names_and_prefixes_of_ids_are_references(
    holds_things: Server, kind: str, reference: str, found: str
) -> None:
    with Client(holds_things.url) as client:
        assert getattr(client, kind)(reference)["id"] == found


def test_name_of_a_route_is_a_reference(serve: Serve) -> None:
    def answer(n: int, method: str, path: str) -> Answer:
        if path.endswith("/groups"):
            return 422, {"title": "Invalid", "detail": "by is required"}
        return 200, {"items": [{"id": "aa11", "name": "groups"}], "next_cursor": None}

    with Client(serve(answer).url) as client:
        assert client.job("groups")["id"] == "aa11"


@pytest.mark.parametrize("kind", ["job", "experiment"])
@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("twice", "'twice' is the name of 2 {}s: cc44, cc55; give an id"),
        ("cc", "'cc' is the prefix of 2 {} ids: cc44, cc55; give more characters"),
        ("", "a name or an id is required, not an empty text"),
    ],
)
def test_references_to_several_things_are_refused(
    holds_things: Server, kind: str, reference: str, message: str
) -> None:
    with Client(holds_things.url) as client, pytest.raises(UsageError) as caught:
        getattr(client, kind)(reference)
    assert caught.value.message == message.format(kind)
