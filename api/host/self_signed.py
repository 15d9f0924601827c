"""A certificate that a coordinator makes for itself, and the authority that signs it.

DATA/tls/
    ca.pem      the authority: what others trust, so it is kept for its 20 years
    ca.key      its key
    server.pem  key and certificate of the coordinator, with the authority's: replaced 30 days
                before its 90 days end, and when the host has another name or address

The folder is its user's alone, and so is each file.
"""

import contextlib
import ipaddress
import socket
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainhall.api.host.credentials import write_private

CA_LIFE = timedelta(days=20 * 365)
LIFE = timedelta(days=90)
RENEWED_BEFORE = timedelta(days=30)
CLOCKS_APART = timedelta(hours=1)
"""So much later than the coordinator's may another host's clock be set."""
MAX_NAME = 64
"""Letters of a common name (RFC 5280)."""


def self_signed(folder: Path, name: str, names: Iterable[str], now: datetime | None = None) -> Path:
    """Return the file with key and certificate, made or renewed where needed.

    Args:
        name: of the file.
        names: names and addresses under which it is reached, besides this host's own.

    Raises:
        OSError: the folder cannot be written.
    """
    now = now or datetime.now(UTC)
    wanted = own_names() | set(names)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    key, authority = _authority(folder, now)
    path = folder / name
    if not _is_current(path, authority, wanted, now):
        write_private(path, _issued(key, authority, wanted, now))
    return path


def is_self_signed(certificate: bytes) -> bool:
    """Return whether a certificate (DER) names itself as its issuer."""
    found = x509.load_der_x509_certificate(certificate)
    return found.issuer == found.subject


def own_names() -> set[str]:
    """Return this host's names and addresses."""
    found = {"localhost", socket.gethostname()}
    for addresses in psutil.net_if_addrs().values():
        for each in addresses:
            with contextlib.suppress(ValueError):
                address = ipaddress.ip_address(each.address)
                # One with a zone means something on its own link alone.
                if not (address.version == 6 and address.is_link_local):
                    found.add(str(address))
    return found | {"127.0.0.1", "::1"}


def _authority(folder: Path, now: datetime) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key_path, path = folder / "ca.key", folder / "ca.pem"
    with contextlib.suppress(FileNotFoundError, ValueError, UnsupportedAlgorithm):
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
        found = x509.load_pem_x509_certificate(path.read_bytes())
        is_pair = key.public_key() == found.public_key()
        lasts = found.not_valid_after_utc > now + LIFE
        if isinstance(key, ec.EllipticCurvePrivateKey) and is_pair and lasts:
            return key, found
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Trainhall on {socket.gethostname()}")
    made = (
        _builder(name, name, key, now, CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_private(key_path, _pem(key))
    write_private(path, _text(made))
    return key, made


def _is_current(path: Path, authority: x509.Certificate, wanted: set[str], now: datetime) -> bool:
    try:
        data = path.read_bytes()
        found = x509.load_pem_x509_certificates(data)[0]
        found.verify_directly_issued_by(authority)
        key = serialization.load_pem_private_key(data, None)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (FileNotFoundError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    has = {str(each) for each in names.get_values_for_type(x509.IPAddress)}
    has |= set(names.get_values_for_type(x509.DNSName))
    lasts = found.not_valid_before_utc <= now < found.not_valid_after_utc - RENEWED_BEFORE
    return lasts and key.public_key() == found.public_key() and _alternatives(wanted)[0] <= has


def _issued(
    key: ec.EllipticCurvePrivateKey, authority: x509.Certificate, wanted: set[str], now: datetime
) -> str:
    own = ec.generate_private_key(ec.SECP256R1())
    name = _name(socket.gethostname())
    made = (
        _builder(name, authority.subject, own, now, LIFE)
        .add_extension(x509.SubjectAlternativeName(_alternatives(wanted)[1]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return _pem(own) + _text(made) + _text(authority)


def _builder(
    name: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_APART)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _alternatives(names: set[str]) -> tuple[set[str], list[x509.GeneralName]]:
    """Return the names that a certificate can have, as text and as it has them."""
    texts: set[str] = set()
    found: list[x509.GeneralName] = []
    for name in sorted(names):
        with contextlib.suppress(ValueError):  # such as letters outside ASCII
            try:
                address = ipaddress.ip_address(name)
                texts.add(str(address))
                found.append(x509.IPAddress(address))
            except ValueError:
                found.append(x509.DNSName(name))
                texts.add(name)
    return texts, found


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:MAX_NAME])])


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
