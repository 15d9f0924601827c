"""TLS settings of clients of a coordinator."""

import functools
import ssl

import httpx


def tls_context(url: str) -> ssl.SSLContext:
    """Return the context for connections to a coordinator's URL.

    Reading all public certificates takes 20 ms, as long as many a command of the CLI waits for its
    answer; a connection by http has no use for them, so its context loads none.
    """
    if url.lower().startswith("https:"):
        return _public()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@functools.cache
def _public() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)
