"""Trust of a coordinator's clients in its certificate, and messages for one that they refuse.

Without more, a coordinator's certificate has to be of a public authority. An *anchor* takes its
place: the authority of the cluster's own, or the very certificate. It is known by a file, or by its
fingerprint, the SHA-256 of its DER bytes in hexadecimal digits. By a fingerprint it is first asked
for over a connection that is not verified and carries no secret; only what has this fingerprint
counts from then on, as kubeadm and k3s do it.
"""

import functools
import hashlib
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trainhall.cluster.api_paths import AGENT_PREFIX

if TYPE_CHECKING:
    import httpx

CA_VARIABLE = "TRAINHALL_TLS_CA"
CA_PATH = f"{AGENT_PREFIX}/ca"
"""Path at which a coordinator serves its anchor, to anyone."""
PIN = "sha256:"
"""Before a fingerprint that is given in place of a file."""
MAX_CA_BYTES = 64 * 1024
FETCH_SECONDS = 10.0
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----\s.+?\s-----END CERTIFICATE-----\n?", re.DOTALL
)
# OpenSSL's X509_V_ERR_… codes.
_NOT_YET_VALID, _EXPIRED, _WRONG_NAMES = 9, 10, (62, 64)
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")


class UntrustedError(Exception):
    """A trusted certificate cannot be read, or is not the pinned one; the message says which."""


@dataclass(frozen=True)
class Anchor:
    """Certificate that a coordinator's is verified with, in place of public authorities."""

    pem: str
    is_own: bool = False
    """True for the coordinator's own certificate: the name in its URL does not matter then."""

    @property
    def fingerprint(self) -> str:
        return fingerprint(certificates(self.pem)[-1])


def tls_context(url: str, anchor: Anchor | None = None) -> ssl.SSLContext:
    """Return the context for connections to a coordinator's URL.

    Reading all public certificates takes 20 ms, as long as many a command of the CLI waits for its
    answer; a connection by http has no use for them, so its context loads none.
    """
    if anchor is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust(context, anchor)
        return context
    if is_https(url):
        return _public()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def trust(context: ssl.SSLContext, anchor: Anchor) -> None:
    """Verify with an anchor in a context, beside those that it has."""
    context.load_verify_locations(cadata=anchor.pem)
    # An anchor may be a certificate that another one signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if anchor.is_own:
        context.check_hostname = False


@functools.cache
def _public() -> ssl.SSLContext:
    # A coordinator verifies with its own certificate, and does without an HTTP client.
    import httpx

    return httpx.create_ssl_context(trust_env=False)


def is_https(url: str) -> bool:
    return url.lower().startswith("https:")


def find_anchor(url: str, given: str) -> Anchor:
    """Return the anchor that a user names: a file in PEM, or `sha256:` and a fingerprint.

    Raises:
        UntrustedError: there is none.
        httpx.TransportError: the coordinator, which is asked for it, does not answer.
    """
    if given.startswith(PIN):
        return fetch_anchor(url, checked_fingerprint(given))
    return read_anchor(Path(given))


def read_anchor(path: Path) -> Anchor:
    """Read a file of authorities.

    Raises:
        UntrustedError: it cannot be read, or holds none.
    """
    try:
        text = path.read_text(encoding="ascii", errors="replace")
        found = certificates(text)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem_of(found))
    except OSError as error:  # ssl.SSLError, too
        raise UntrustedError(f"{path} cannot be used as {CA_VARIABLE}: {error}") from None
    except ValueError:
        raise UntrustedError(f"{path}, {CA_VARIABLE}, holds no certificate in PEM") from None
    return Anchor(pem_of(found))


def own_anchor(path: Path) -> Anchor:
    """Read the file that a coordinator serves its certificate from: that one alone is trusted.

    Raises:
        OSError, ValueError: it cannot be read, or holds none.
    """
    own = certificates(path.read_text(encoding="ascii", errors="replace"))[0]
    return Anchor(pem_of([own]), is_own=True)


def fetch_anchor(url: str, expected: str) -> Anchor:
    """Ask a coordinator for what it is verified with, and take it if it has this fingerprint.

    Raises:
        UntrustedError: neither its certificate nor its authority has.
        httpx.TransportError: it does not answer.
    """
    import httpx  # as above

    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname = False
    anyone.verify_mode = ssl.CERT_NONE
    options = {"verify": anyone, "trust_env": False, "timeout": FETCH_SECONDS}
    with (
        httpx.Client(**options) as http,  # type: ignore[arg-type]
        http.stream("GET", url.rstrip("/") + CA_PATH) as answer,
    ):
        own = _peer_certificate(answer)
        if own is not None and fingerprint(own) == expected:
            return Anchor(pem_of([own]), is_own=True)
        served = b""
        for chunk in answer.iter_bytes():
            served += chunk
            if len(served) > MAX_CA_BYTES:
                break
    for each in _certificates_in(served.decode("ascii", "replace")):
        if fingerprint(each) == expected:
            return Anchor(pem_of([each]))
    raise UntrustedError(
        f"the certificate of {url} is not the pinned one: neither it nor its authority has the "
        f"SHA-256 {expected}. If it was replaced on purpose, take the new fingerprint (a join "
        "token holds it: `trainhall nodes add`); if not, someone answers in the coordinator's place"
    )


def _peer_certificate(answer: "httpx.Response") -> bytes | None:
    stream = answer.extensions["network_stream"].get_extra_info("ssl_object")
    found: bytes | None = stream.getpeercert(True) if stream is not None else None
    return found


def checked_fingerprint(given: str) -> str:
    """Return a fingerprint as it is compared: without `sha256:` and colons, in lower case.

    Raises:
        UntrustedError: it is none.
    """
    found = given.removeprefix(PIN).replace(":", "").lower()
    if not _FINGERPRINT.fullmatch(found):
        raise UntrustedError(
            f"{given!r} is not the fingerprint of a certificate: it has 64 hexadecimal digits"
        )
    return found


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate's DER bytes, in hexadecimal digits."""
    return hashlib.sha256(certificate).hexdigest()


def certificates(text: str) -> list[bytes]:
    """Return the certificates of a text in PEM as DER bytes, in their order.

    Raises:
        ValueError: there is none.
    """
    found = _certificates_in(text)
    if not found:
        raise ValueError("no certificate in PEM")
    return found


def _certificates_in(text: str) -> list[bytes]:
    found = []
    for each in _CERTIFICATE.findall(text):
        try:
            found.append(ssl.PEM_cert_to_DER_cert(each))
        except ValueError:
            continue
    return found


def pem_of(found: list[bytes]) -> str:
    return "".join(map(ssl.DER_cert_to_PEM_cert, found))


def describe_refusal(error: BaseException, url: str, pinned: Anchor | None = None) -> str | None:
    """Return why a certificate was refused, and what to do; None: something else failed.

    Args:
        error: of a connection, with what caused it.
        pinned: the anchor that was trusted.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return None
    if not isinstance(cause, ssl.SSLCertVerificationError):
        if any(reason in str(cause) for reason in _NO_TLS):
            return f"{url} does not speak TLS: use http://, or start the coordinator with TLS"
        return None
    if cause.verify_code == _EXPIRED:
        return f"the certificate of {url} has expired: renew it on the coordinator's host"
    if cause.verify_code == _NOT_YET_VALID:
        return f"the certificate of {url} is not valid yet: compare the clocks of both hosts"
    if cause.verify_code in _WRONG_NAMES:
        return (
            f"the certificate of {url} is not for the name {urlsplit(url).hostname!r}: use a name "
            "that it has, or have it made for this name, too (TRAINHALL_ALLOWED_HOSTS names more "
            "for a self-signed one)"
        )
    if pinned is not None:
        return (
            f"the certificate of {url} is not from the authority that is trusted here (SHA-256 "
            f"{pinned.fingerprint}). If it was replaced on purpose, trust the new one: for an "
            "agent run `trainhall nodes add` and start it with the new join token, elsewhere set "
            f"{CA_VARIABLE}. If not, someone answers in the coordinator's place"
        )
    return (
        f"the certificate of {url} is of no authority that this host trusts "
        f"({cause.verify_message}): set {CA_VARIABLE} to the file of its authority, or to the "
        f"{PIN}… that it logs at its start"
    )
