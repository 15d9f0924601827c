"""The HTTP server behind `MLFLOW_TRACKING_URI`: a child process of the shim, from the first
connection on.

It listens on loopback. Other users and jobs of the host reach it, too, so each request has to carry
the attempt's token, which only its ranks know.
"""

import contextlib
import hmac
import json
import os
import shutil
import socket
import sys
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from trainhall.cluster.agent.tracking.artifacts import Artifacts
from trainhall.cluster.agent.tracking.mlflow_api import MlflowApi, Request
from trainhall.cluster.agent.tracking.record import Record, Run
from trainhall.cluster.wire.mlflow import ARTIFACTS, MAX_BODY, ApiError
from trainhall.training.link.folder import AttemptFolder, Writer
from trainhall.training.link.launch import Launch

_PART = 1 << 20


class Server(ThreadingMixIn, TCPServer):
    """A thread for each connection: a rank has one, and a slow upload holds up no metric."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, token: str, api: MlflowApi, files: Artifacts):
        super().__init__(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.token = token
        self.api = api
        self.files = files

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note what went wrong, unless the client went away."""
        if not isinstance(sys.exception(), ConnectionError):
            traceback.print_exc()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "trainhall"
    sys_version = ""
    # Head and body in one packet, sent at once.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._body_is_read = False
        try:
            self._serve()
        except ApiError as error:
            self._refuse(error)
        except ConnectionError:
            self.close_connection = True
        except Exception as error:
            # A status above 499 would be retried for minutes.
            traceback.print_exc()
            what = f"{type(error).__name__}: {error}"
            self._refuse(ApiError(400, "INTERNAL_ERROR", f"the request failed: {what}"))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: a request for each metric."""

    def _serve(self) -> None:
        rank = self._rank()
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        prefix = next((each for each in ARTIFACTS if url.path.startswith(each)), None)
        if prefix is not None:
            self._serve_artifact(unquote(url.path[len(prefix) :]).strip("/"), query)
            return
        request = Request(self.command, url.path, query, self._json(), rank)
        self._send(200, self.server.api.answer(request))

    def _rank(self) -> int:
        """Return the rank whose token the request carries."""
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        token, _, rank = given.strip().rpartition(".")
        known = hmac.compare_digest(token.encode(), self.server.token.encode())
        if kind.lower() != "bearer" or not known or not rank.isdecimal():
            raise ApiError(
                401,
                "UNAUTHENTICATED",
                "this address serves one attempt of a Trainhall job: its processes find their "
                "token in MLFLOW_TRACKING_TOKEN",
            )
        return int(rank)

    def _serve_artifact(self, path: str, query: dict[str, str]) -> None:
        files = self.server.files
        if self.command == "PUT":
            files.store(path, self._parts())
            self._send(200, {})
        elif self.command == "DELETE":
            files.remove(path)
            self._send(200, {})
        elif path:
            with files.open(path) as file:
                size = os.fstat(file.fileno()).st_size
                self._head(200, "application/octet-stream", size)
                if self.command != "HEAD":
                    shutil.copyfileobj(file, self.wfile, _PART)
        else:
            self._send(200, files.list(query.get("path", "")))

    # -- bodies ---------------------------------------------------------------------------------

    def _json(self) -> dict[str, Any]:
        body = bytearray()
        for part in self._parts():
            body += part
            if len(body) > MAX_BODY:
                raise ApiError(413, "INVALID_PARAMETER_VALUE", f"a body has at most {MAX_BODY} B")
        if not body:
            return {}
        try:
            found = json.loads(body)
        except ValueError as error:
            raise ApiError(400, "BAD_REQUEST", f"the body is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise ApiError(400, "BAD_REQUEST", "the body must be a JSON object")
        return found

    def _parts(self) -> Iterator[bytes]:
        """Yield the request's body.

        Raises:
            ConnectionError: it ends early.
            ApiError: its length is no number.
        """
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := _size(self.rfile.readline(100).partition(b";")[0].strip(), 16):
                yield from self._read(size)
                self.rfile.readline(3)
            while self.rfile.readline(65536).strip():
                pass  # trailers
        else:
            yield from self._read(_size(self.headers.get("Content-Length", "0").encode(), 10))
        self._body_is_read = True

    def _read(self, size: int) -> Iterator[bytes]:
        while size:
            part = self.rfile.read(min(size, _PART))
            if not part:
                raise ConnectionError
            size -= len(part)
            yield part

    def _send(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self._head(status, "application/json", len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, kind: str, size: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def _refuse(self, error: ApiError) -> None:
        # What is left of the body would be taken as the next request.
        self.close_connection = self.close_connection or not self._body_is_read
        with contextlib.suppress(ConnectionError):
            self._send(error.status, {"error_code": error.code, "message": str(error)})


def _size(text: bytes, base: int) -> int:
    try:
        size = int(text, base)
    except ValueError:
        size = -1
    if size < 0:
        raise ApiError(400, "BAD_REQUEST", f"{text[:20]!r} is no length of a body")
    return size


def serve(
    fd: int, token: str, folder: AttemptFolder, launch: Launch, writer: Writer, outputs: Path
) -> int:
    """Serve an attempt's ranks on this host for as long as they live.

    Args:
        fd: the socket that listens.
        writer: name of the files for what is logged.
        outputs: the job's folder of outputs on this host.
    """
    name = launch.spec.name or launch.job_id
    run = Run(launch.job_id, name, "", start=int(1000 * folder.launch.stat().st_mtime))
    record = Record(folder, writer, run)
    api = MlflowApi(record, experiment=name)
    listener = socket.socket(fileno=fd)
    Server(listener, token, api, Artifacts(record, outputs / "mlflow")).serve_forever()
    return 0
