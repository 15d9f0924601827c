"""Large files of this host as bodies of requests, sent by the kernel without a copy in Python."""

import asyncio
import contextlib
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from typing import BinaryIO

import httpx

LEAST_BYTES = 2**20
"""Smaller files are better off with a connection that is open already."""
MAX_UPLOADS = 32
"""Files in flight of all jobs of a host; more wait."""


class BrokenUploadError(Exception):
    """No reply came; the message says why."""


class FileUploads:
    """Uploads over plain HTTP, each in a thread of its own.

    Args:
        connect_seconds: time for a connection.
        reply_seconds: time for the other side to take some bytes, or to reply.
        socket_options: as of `socket.setsockopt`.
    """

    def __init__(
        self,
        connect_seconds: float,
        reply_seconds: float,
        socket_options: Sequence[tuple[int, int, int]],
    ) -> None:
        self._connect_seconds, self._reply_seconds = connect_seconds, reply_seconds
        self._socket_options = socket_options
        # Not the loop's own: on a slow network these threads are busy for hours.
        self._threads = ThreadPoolExecutor(MAX_UPLOADS, thread_name_prefix="upload")

    async def put(
        self, url: httpx.URL, headers: Mapping[str, str], file: BinaryIO, offset: int, size: int
    ) -> httpx.Response:
        """Send `size` bytes, at least one, of a file from `offset` on. The file stays open.

        Raises:
            BrokenUploadError
        """
        upload = _Upload(self, url, headers, file, offset, size)
        work = asyncio.get_running_loop().run_in_executor(self._threads, upload.run)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            upload.abort()
            # The file is the caller's: the thread may not read it any longer.
            while not work.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({work})
            if not work.cancelled():
                work.exception()  # retrieved: nobody else asks for it
            raise

    def connect(self, url: httpx.URL) -> HTTPConnection:
        """Return an open connection."""
        connection = HTTPConnection(
            url.raw_host.decode(), url.port or 80, timeout=self._connect_seconds
        )
        connection.connect()
        connection.sock.settimeout(self._reply_seconds)
        for option in self._socket_options:
            connection.sock.setsockopt(*option)
        return connection

    def close(self) -> None:
        self._threads.shutdown(wait=False)


class _Upload:
    def __init__(
        self,
        uploads: FileUploads,
        url: httpx.URL,
        headers: Mapping[str, str],
        file: BinaryIO,
        offset: int,
        size: int,
    ) -> None:
        self._uploads, self._url, self._headers = uploads, url, headers
        self._file, self._offset, self._size = file, offset, size
        self._socket: socket.socket | None = None
        self._is_aborted = False

    def run(self) -> httpx.Response:
        try:
            connection = self._uploads.connect(self._url)
        except OSError as error:
            raise BrokenUploadError(f"no connection: {error.strerror or error}") from None
        self._socket = connection.sock
        try:
            return self._exchange(connection)
        except (OSError, HTTPException) as error:
            why = str(error) or type(error).__name__
            raise BrokenUploadError(f"the connection broke: {why}") from None
        finally:
            connection.close()

    def _exchange(self, connection: HTTPConnection) -> httpx.Response:
        if self._is_aborted:
            raise BrokenUploadError("aborted")
        connection.putrequest("PUT", self._url.raw_path.decode(), skip_accept_encoding=True)
        headers = {
            **self._headers, "Content-Length": str(self._size), "Connection": "close",
        }  # fmt: skip
        for name, value in headers.items():
            connection.putheader(name, value)
        # What refuses a file replies before it has all of it, and closes the connection.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.endheaders()
            sent = connection.sock.sendfile(self._file, self._offset, self._size)
            if sent < self._size:
                raise BrokenUploadError(f"the file has {self._size - sent} bytes less than before")
        answer = connection.getresponse()
        return httpx.Response(
            answer.status, content=answer.read(), request=httpx.Request("PUT", self._url)
        )

    def abort(self) -> None:
        """End it from another thread."""
        self._is_aborted = True
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is closed by now
                self._socket.shutdown(socket.SHUT_RDWR)
