"""The certificate that a coordinator makes for itself."""

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from trainhall.api.host.self_signed import is_self_signed, self_signed
from trainhall.cluster.tls import certificates

DAY = timedelta(days=1)


def made(folder: Path, *names: str, days: int = 0) -> list[bytes]:
    """The chain of the certificate that is served so many days from now."""
    path = self_signed(folder, "server.pem", names, datetime.now(UTC) + days * DAY)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
    return certificates(path.read_text())


def names_in(certificate: bytes) -> set[str]:
    found = x509.load_der_x509_certificate(certificate).extensions
    names = found.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = names.get_values_for_type(x509.IPAddress)
    return {*names.get_values_for_type(x509.DNSName), *map(str, addresses)}


def test_certificate_names_the_host_and_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    own, authority = made(folder, "lab.example", "10.0.0.7", "café")
    assert names_in(own) >= {
        "localhost", "127.0.0.1", "::1", socket.gethostname(), "lab.example", "10.0.0.7",
    }  # fmt: skip
    assert [is_self_signed(each) for each in (own, authority)] == [False, True]
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert modes == {"tls": 0o700, "ca.pem": 0o600, "ca.key": 0o600, "server.pem": 0o600}
    assert certificates((folder / "ca.pem").read_text()) == [authority]


def test_certificate_is_kept_until_it_must_be_renewed(tmp_path: Path) -> None:
    first = made(tmp_path, "lab.example")
    assert made(tmp_path, "lab.example") == first
    assert made(tmp_path, "lab.example", days=59) == first
    renewed = made(tmp_path, "lab.example", days=61)
    assert renewed[0] != first[0], "30 days before its end"
    assert renewed[1] == first[1], "who trusts the authority trusts this one, too"
    more = made(tmp_path, "lab.example", "other.example", days=61)
    assert more[0] != renewed[0], "the host has another name"
    assert more[1] == first[1]
    assert made(tmp_path, "lab.example", days=61) == more, "one name fewer is no reason"


@pytest.mark.parametrize("name", ["server.pem", "ca.pem", "ca.key"])
@pytest.mark.parametrize("content", [b"", b"-----BEGIN CERTIFICATE-----\nMIIB", None])
def test_damaged_file_is_replaced(tmp_path: Path, name: str, content: bytes | None) -> None:
    first = made(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    second = made(tmp_path)
    assert second[0] != first[0]
    assert (second[1] == first[1]) == (name == "server.pem")


def test_authority_that_ends_is_replaced(tmp_path: Path) -> None:
    first = made(tmp_path)
    later = made(tmp_path, days=20 * 365 - 80)
    assert later[1] != first[1]
