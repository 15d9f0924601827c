"""Ids while they are typed, in the shell: answered at once or not at all.

Each press of the tab key is a process of its own, so nothing heavy is imported here.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import typer
from typer.core import TyperCommand

from trainhall.cli.base import config
from trainhall.cli.base.credentials import token_for
from trainhall.cli.base.errors import CliError, NotAllowedError
from trainhall.cluster.api_paths import API_PREFIX
from trainhall.cluster.jobs.listing.keys import METRICS, PARAMETERS, SORT_KEYS

_LAST_WORD = "trainhall.last_word"
PATIENCE_SECONDS = 0.25
"""For all that is asked of the coordinator for one press."""
NEWEST_JOBS = 100
JOBS_WITH_CHECKPOINTS = 5

# Shells evaluate what they are offered, and anybody may have named a job `\\$(something evil)`.
_PLAIN_ID = re.compile(r"[\w.-]+")
_NOT_PLAIN = re.compile(r"[^\w .,:;=+@%/-]")

# A list of (what may be typed, what it is).
Completions = list[tuple[str, str]]


class CommandWithSigns(TyperCommand):
    """Completes a value that begins with a dash, which Typer takes for an option: `--sort -KEY`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_LAST_WORD] = args[-1] if args else ""
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        for option in self.params:
            if ctx.meta[_LAST_WORD] in option.opts and not getattr(option, "is_flag", True):
                return option.shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


def jobs(context: typer.Context, incomplete: str) -> Completions:
    """Return ids of the newest jobs."""
    items = _Coordinator(context).items(f"/training/jobs?limit={NEWEST_JOBS}")
    return _beginning(incomplete, ((j["id"], f"{j['name']}, {j['state']}") for j in items))


def sort_keys(context: typer.Context, incomplete: str) -> Completions:
    """Return keys by which jobs are sorted, also by what the newest jobs have."""
    sign = "-" if incomplete.startswith("-") else ""
    keys = dict.fromkeys(SORT_KEYS, "")
    for job in _Coordinator(context).items(f"/training/jobs?limit={NEWEST_JOBS}"):
        keys |= dict.fromkeys((PARAMETERS + name for name in _names(job, "spec", "parameters")), "")
        keys |= dict.fromkeys((METRICS + name for name in _names(job, "metrics")), "")
    return [(sign + key, text) for key, text in _beginning(incomplete[len(sign) :], keys.items())]


def experiments(context: typer.Context, incomplete: str) -> Completions:
    """Return ids of the newest experiments."""
    items = _Coordinator(context).items(f"/experiments?limit={NEWEST_JOBS}")
    return _beginning(incomplete, ((e["id"], f"{e['name']}, {e['state']}") for e in items))


def alerts(context: typer.Context, incomplete: str) -> Completions:
    """Return ids of alerts."""
    items = _Coordinator(context).items(f"/alerts?limit={NEWEST_JOBS}")
    return _beginning(incomplete, ((a["id"], a["name"]) for a in items))


def reports(context: typer.Context, incomplete: str) -> Completions:
    """Return ids of the newest reports."""
    items = _Coordinator(context).items(f"/reports?limit={NEWEST_JOBS}")
    return _beginning(incomplete, ((r["id"], r["title"]) for r in items))


def nodes(context: typer.Context, incomplete: str) -> Completions:
    """Return names of nodes."""
    items = _Coordinator(context).items("/cluster/nodes")
    return _beginning(incomplete, ((n["name"], n["state"]) for n in items))


def checkpoints(context: typer.Context, incomplete: str) -> Completions:
    """Return ids of checkpoints of the newest jobs."""
    coordinator = _Coordinator(context)

    def every() -> Iterator[tuple[str, str]]:
        for job in coordinator.items(f"/training/jobs?limit={JOBS_WITH_CHECKPOINTS}"):
            for found in coordinator.items(f"/checkpoints/jobs/{job['id']}"):
                yield found["id"], f"{job['name']} at step {found['step']}, {found['state']}"

    return _beginning(incomplete, every())


def _beginning(incomplete: str, found: Iterable[tuple[str, str]]) -> Completions:
    try:
        return [
            (text, _NOT_PLAIN.sub(" ", help_text))
            for text, help_text in found
            if text.startswith(incomplete) and _PLAIN_ID.fullmatch(text)
        ]
    except (LookupError, TypeError, AttributeError):
        return []  # something else answers there


def _names(job: object, *keys: str) -> list[str]:
    """Return the names in an object inside a job; none if it is something else."""
    for key in keys:
        job = job.get(key) if isinstance(job, dict) else None
    return [str(name) for name in job] if isinstance(job, dict) else []


class _Coordinator:
    """Asks one coordinator, and finds nothing where it is away, slow or not one."""

    def __init__(self, context: typer.Context) -> None:
        self._url = _url(context)
        self._deadline = time.monotonic() + PATIENCE_SECONDS
        import urllib.request  # every command would wait for it

        # No proxy of the environment: it is on loopback or in the lab's network.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with suppress(NotAllowedError):
            if token := token_for(self._url):
                self._opener.addheaders.append(("Authorization", f"Bearer {token}"))

    def items(self, path: str) -> list[Any]:
        from http.client import HTTPException

        left = self._deadline - time.monotonic()
        if left <= 0:
            return []
        try:
            with self._opener.open(f"{self._url}{API_PREFIX}{path}", timeout=left) as reply:
                items = json.load(reply)["items"]
                return items if isinstance(items, list) else []
        except (OSError, HTTPException, ValueError, LookupError, TypeError):
            return []


def _url(context: typer.Context) -> str:
    given = str(context.params.get("url") or config.DEFAULT_URL)
    if given == config.DEFAULT_URL:
        # The configuration file is read by the callback of the root, which does not run now.
        try:
            defaults = config.default_map(context.find_root().command)
        except CliError:
            return given
        given = defaults.get("ls", {}).get("url", given)
    return given.rstrip("/")
