"""Program that downloads a URL to its standard output, as the user of a job.

Request: `{"url": …, "headers": {…}, "offset": n}`. It prints a line `{"offset": n, "total": n |
null}`, then the bytes from that offset on: the one that was asked for, or 0 where the server sends
the whole file.
"""

import ipaddress
import json
import os
import socket
import sys
from collections.abc import Mapping

import httpx

from trainhall import __version__
from trainhall.cluster.agent.data import programs

MAX_REDIRECTS = 10
CONNECT_SECONDS = 30.0
READ_SECONDS = 60.0
"""For the next bytes."""
_AGAIN = (408, 425, 429)
"""Refusals that are for the moment; those from 500 on are, too."""
_METADATA = {"fd00:ec2::254", "100.100.100.200", "168.63.129.16"}
"""Addresses outside the link-local ranges at which clouds tell a host who it is."""


class _RefusedError(Exception):
    """The URL cannot be downloaded, now or later."""


def main() -> int:
    request = programs.read_request()
    try:
        _download(httpx.URL(request["url"]), request["headers"], request["offset"])
    except _RefusedError as error:
        return programs.fail(str(error))
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        return programs.fail(f"it redirects to what is no URL: {error}")
    except httpx.HTTPStatusError as error:
        response = error.response
        again = response.status_code in _AGAIN or response.status_code >= 500
        why = f"{response.url.host} answered {response.status_code} {response.reason_phrase}"
        return programs.fail(why.rstrip(), again=again)
    except (httpx.HTTPError, OSError) as error:
        return programs.fail(f"{error or type(error).__name__}", again=True)
    return 0


def _download(url: httpx.URL, headers: Mapping[str, str], offset: int) -> None:
    timeout = httpx.Timeout(CONNECT_SECONDS, read=READ_SECONDS)
    with httpx.Client(timeout=timeout) as client:
        for _ in range(MAX_REDIRECTS + 1):
            _check_name(url)
            sent = {"User-Agent": f"trainhall/{__version__}", **headers}
            sent["Accept-Encoding"] = "identity"
            if offset:
                sent["Range"] = f"bytes={offset}-"
            with client.stream("GET", url, headers=sent) as response:
                _check_peer(response)
                if response.has_redirect_location:
                    target = url.join(response.headers["Location"])
                    if not _is_same_origin(url, target):
                        headers = {}
                    url = target
                elif offset and response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                    offset = 0  # the file is another one by now
                else:
                    response.raise_for_status()
                    _copy(response, offset)
                    return
    raise _RefusedError(f"it redirects more than {MAX_REDIRECTS} times")


def _copy(response: httpx.Response, offset: int) -> None:
    is_rest = response.status_code == httpx.codes.PARTIAL_CONTENT
    if is_rest and not response.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
        raise _RefusedError("the server sends another part than it was asked for")
    begin = offset if is_rest else 0
    length = response.headers.get("Content-Length", "")
    total = begin + int(length) if length.isdigit() else None
    output = sys.stdout.buffer
    output.write(json.dumps({"offset": begin, "total": total}).encode() + b"\n")
    try:
        for chunk in response.iter_raw():
            output.write(chunk)
    finally:
        output.flush()  # what came before a connection broke is not asked for again


def _is_same_origin(one: httpx.URL, other: httpx.URL) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


def _check_name(url: httpx.URL) -> None:
    """Refuse a name of an address that is not for jobs, as far as this host can tell."""
    if url.scheme not in ("http", "https"):
        raise _RefusedError(f"it redirects to {url.scheme}:, and https or http are allowed")
    try:
        found = socket.getaddrinfo(url.host, url.port or 443, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return  # a proxy may know it; else the connection fails
    for *_, address in found:
        _check_address(str(address[0]), url.host)


def _check_peer(response: httpx.Response) -> None:
    """Refuse an answer of such an address: the name may have led elsewhere meanwhile."""
    peer = response.extensions["network_stream"].get_extra_info("server_addr")
    if peer:
        _check_address(str(peer[0]), response.url.host)


def _check_address(address: str, host: str) -> None:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if parsed.is_link_local or str(parsed) in _METADATA:
        raise _RefusedError(f"{host} is {parsed}, an address that hosts keep for themselves")


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Without the interpreter's end, which would fail where nobody reads the output any more.
    os._exit(code)
