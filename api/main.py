"""`python -m uvicorn api.main:app`, as an alternative to `trainhall server`."""

from typing import Any

import click

from trainhall.api.host.garbage import collect_rarely
from trainhall.api.host.lean_imports import import_structlog

import_structlog()
collect_rarely()  # before the imports that make most of the objects

from trainhall.api.app import create_app
from trainhall.api.host.private_files import keep_private
from trainhall.api.login.first_admin import print_login_link
from trainhall.api.logs import configure_logging
from trainhall.api.settings import Settings


def _url() -> str | None:
    """Return the URL at which uvicorn will listen; None where its options do not say."""
    context = click.get_current_context(silent=True)
    given: dict[str, Any] = context.params if context is not None else {}
    host, port = given.get("host"), given.get("port")
    if not host or not port or given.get("uds") or given.get("fd") is not None:
        return None
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    scheme = "https" if given.get("ssl_certfile") else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


_settings = Settings()
configure_logging(_settings.logged_level)
keep_private(_settings.data_dir)
app = create_app(_settings, url=_url(), on_login_link=print_login_link)
