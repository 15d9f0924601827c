"""TLS settings of clients of a coordinator."""

import ssl

import pytest

from trainhall.cluster.tls import tls_context


@pytest.mark.parametrize("url", ["https://lab", "HTTPS://lab:8443"])
def test_https_needs_a_certificate_of_a_public_authority(url: str) -> None:
    context = tls_context(url)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.cert_store_stats()["x509_ca"] > 0


def test_context_of_plain_http_trusts_no_one() -> None:
    context = tls_context("http://lab")
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.cert_store_stats()["x509"] == 0
