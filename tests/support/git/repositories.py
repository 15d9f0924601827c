"""Git repositories for tests, and a server of them over HTTP."""

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_WHO = ("-c", "user.name=Ada", "-c", "user.email=ada@lab.example", "-c", "commit.gpgsign=false")


class Repository:
    """A repository with a working tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        """Run git in it; return what that prints."""
        command = ["git", *_WHO, "-C", str(self.folder), *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, **files: str) -> str:
        """Commit files, given by their names without `.py`; return the commit."""
        for name, text in files.items():
            (self.folder / f"{name}.py").write_text(text)
        self.git("add", "--all")
        self.git("commit", "-q", "-m", "work")
        return self.git("rev-parse", "HEAD")


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        given = self.headers.get("Authorization")
        self.server.authorizations.append(given)
        if self.server.token is not None and given != self.server.expected:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="lab"')
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, check=True
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(headers.pop("Status", "200 OK").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


class _Server(ThreadingHTTPServer):
    def __init__(self, folder: Path, token: str | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.token = token
        self.expected = "Basic " + base64.b64encode(f"oauth2:{token}".encode()).decode()
        self.authorizations: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def git_server(folder: Path, token: str | None = None) -> Iterator[_Server]:
    """Serve the repositories of a folder over HTTP.

    Args:
        token: what the server asks for; None: everybody may clone.
    """
    with _Server(folder, token) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
