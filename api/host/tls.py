"""TLS of a coordinator: which certificate it serves, and what others know it by."""

import asyncio
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog

from trainhall.cluster.tls import Anchor, UntrustedError, certificates, pem_of, read_anchor

SELF_SIGNED = "server.pem"
CHECK_SECONDS = 60.0
"""Between two looks whether the certificate was, or has to be, renewed."""

log = structlog.get_logger(__name__)


class CertificateError(Exception):
    """The certificate cannot be used; the message says why."""


@dataclass(frozen=True)
class Tls:
    """
    Args:
        folder: where a self-signed certificate is kept.
        cert, key: files in PEM; without them the coordinator makes its own certificate.
        ca: the authority of the certificate, where that is not a public one: of these files, or
            of a proxy's certificate.
        names: of a self-signed certificate, besides the host's own.
    """

    folder: Path
    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    is_self_signed: bool = False
    names: Iterable[str] = ()

    @property
    def is_on(self) -> bool:
        return self.cert is not None or self.is_self_signed

    def current(self) -> tuple[Path, Path]:
        """Return the files of certificate and key; a self-signed one is made or renewed.

        Raises:
            CertificateError: it cannot be made.
        """
        if self.cert is not None and self.key is not None:
            return self.cert, self.key
        # A coordinator with a certificate of its user's, or without one, makes none.
        from trainhall.api.host.self_signed import self_signed

        try:
            made = self_signed(self.folder, SELF_SIGNED, self.names)
        except OSError as error:
            raise CertificateError(f"cannot keep a certificate in {self.folder}: {error}") from None
        return made, made

    @property
    def file(self) -> Path:
        """Return the file whose first certificate is the coordinator's own."""
        return self.cert or self.folder / SELF_SIGNED

    def anchor(self) -> Anchor | None:
        """Return what other hosts are to pin; None: a public authority vouches for it.

        That is the authority where it is known, so that a renewed certificate is trusted, too:
        the one that was set, or the last certificate of the file if nobody else signed it.

        Raises:
            CertificateError: a file cannot be read.
        """
        if self.ca is not None:
            try:
                return read_anchor(self.ca)
            except UntrustedError as error:
                raise CertificateError(str(error)) from None
        if not self.is_on:
            return None
        from trainhall.api.host.self_signed import is_self_signed

        path = self.file
        try:
            found = certificates(path.read_text(encoding="ascii", errors="replace"))
            pinned = found[-1] if is_self_signed(found[-1]) else None
        except (OSError, ValueError) as error:
            raise CertificateError(f"{path} holds no certificate in PEM: {error}") from None
        return Anchor(pem_of([pinned])) if pinned is not None else None


class ServedCertificate:
    """The context of a server; it takes up a certificate that was renewed, while it serves."""

    def __init__(self, tls: Tls) -> None:
        """Load the certificate.

        Raises:
            CertificateError: it cannot be used.
        """
        self._tls = tls
        self._loaded: object = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._refresh(tls.current())

    async def keep_current(self) -> None:
        """Look for a renewed certificate, and renew an own one, until cancelled."""
        logged = ""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                if self._refresh(await asyncio.to_thread(self._tls.current)):
                    log.info("certificate_renewed", file=str(self._tls.file))
                logged = ""
            except CertificateError as error:
                # As while one of two files was replaced; the old one serves on.
                if str(error) != logged:
                    log.error("certificate_not_renewed", error=str(error))
                logged = str(error)

    def _refresh(self, files: tuple[Path, Path]) -> bool:
        cert, key = files
        try:
            stamp = [(p.stat().st_mtime_ns, p.stat().st_ino) for p in files]
            if stamp == self._loaded:
                return False
            # A pair that does not match would leave the context without a key.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, _no_password)
            self.context.load_cert_chain(cert, key, _no_password)
        except (OSError, ValueError) as error:  # ssl.SSLError, too
            named = f"{cert} with {key}" if key != cert else str(cert)
            raise CertificateError(
                f"the certificate {named} cannot be used: {_words(error)}"
            ) from None
        self._loaded = stamp
        return True


def _no_password() -> str:
    raise ValueError("its key has a password; store it without one")


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return "the key is of another certificate"
    if isinstance(error, ssl.SSLError):
        return "it is not in PEM, or there is more in it than certificate and key"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
