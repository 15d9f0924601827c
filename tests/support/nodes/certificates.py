"""Authorities and certificates, made on the spot."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from trainhall.cluster.tls import certificates, fingerprint

PEM = serialization.Encoding.PEM
HERE = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Files:
    cert: Path
    key: Path

    @property
    def fingerprint(self) -> str:
        """That of the last certificate in the file."""
        return fingerprint(certificates(self.cert.read_text())[-1])


class Authority:
    """Signs certificates for 90 days."""

    def __init__(self, folder: Path, name: str = "A lab") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._cert = _sign(self._name, self._name, self._key, self._key, (), is_ca=True)
        self.file = folder / "ca.pem"
        self.file.write_bytes(self._cert.public_bytes(PEM))

    @property
    def fingerprint(self) -> str:
        return fingerprint(self._cert.public_bytes(serialization.Encoding.DER))

    def issue(
        self,
        *names: str,
        ends: timedelta = timedelta(days=90),
        chain: bool = True,
        file: str = "server",
    ) -> Files:
        """A certificate and its key.

        Args:
            ends: from now; negative: it has expired.
            chain: put the authority's certificate behind it.
            file: name of the files, which are replaced.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "coordinator")])
        made = _sign(subject, self._name, key, self._key, names or HERE, ends=ends)
        pem = made.public_bytes(PEM) + (self._cert.public_bytes(PEM) if chain else b"")
        return _write(self.folder, file, pem, key)


def self_signed(folder: Path, *names: str, is_ca: bool = False) -> Files:
    """A certificate that no authority signed, as `openssl req -x509` makes one."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "coordinator")])
    made = _sign(name, name, key, key, names, is_ca=is_ca)
    return _write(folder, "self-signed", made.public_bytes(PEM), key)


def _sign(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    names: Sequence[str],
    *,
    ends: timedelta = timedelta(days=90),
    is_ca: bool = False,
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=100))
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if names:
        alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(signer, hashes.SHA256())


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(folder: Path, name: str, pem: bytes, key: ec.EllipticCurvePrivateKey) -> Files:
    files = Files(folder / f"{name}.pem", folder / f"{name}.key")
    files.cert.write_bytes(pem)
    files.key.write_bytes(
        key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files
