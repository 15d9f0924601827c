"""Refusals of requests, as the audit log keeps them: what was to be done, and to what."""

from collections.abc import MutableMapping, Sequence
from typing import Any

from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from trainhall.api.context import coordinator_of
from trainhall.api.limits import address_of
from trainhall.api.problems import RefusalError
from trainhall.cluster.access.audit import HIDDEN
from trainhall.cluster.accounts.audit import Refusal
from trainhall.cluster.api_paths import AGENT_PREFIX
from trainhall.cluster.errors import ForbiddenError, NotFoundError, NotHeldError

READ = "read"
READERS = frozenset({"analyze_experiment", "ask_what_if"})
"""Operations that change nothing, though their method is no GET."""
PREPARING = frozenset({"approve_browser_login", "begin_device_login", "decide_device_login"})
"""Operations that store nothing: what comes of them, a token, leaves a row."""
SECRETS = frozenset({"user_code"})
"""Parameters of paths that are secret for a while."""
ACTIONS = {
    "add_group_member": "group.change",
    "approve_browser_login": "login.approve",
    "begin_device_login": "login.begin",
    "call_mlflow": "run.log",
    "capture_gradients": "job.capture_gradients",
    "collect_checkpoints": "checkpoint.collect",
    "create_login_link": "link.create",
    "create_port_link": "job.forward",
    "decide_device_login": "login.approve",
    "delete_artifact": "run.delete_artifact",
    "log_in": "session.create",
    "log_in_by_password": "session.create",
    "log_out": "session.end",
    "open_exec": "job.exec",
    "open_forward": "job.forward",
    "poll_device_login": "token.create",
    "put_code": "code.upload",
    "remove_group_member": "group.change",
    "remove_own_secret": "secret.remove",
    "remove_project_secret": "secret.remove",
    "set_own_secret": "secret.set",
    "set_project_secret": "secret.set",
    "store_artifact": "run.log",
    "take_stacks": "job.stacks",
    "trade_browser_code": "token.create",
}
"""Actions of operations whose function does not name them, as `cancel_job` does `job.cancel`."""
AGENT_ACTIONS = {
    "commit": "checkpoint.commit",
    "commit_outputs": "output.commit",
    "connect": "node.connect",
    "create_token": "token.create",
    "join": "node.join",
    "open_tunnel": "tunnel.open",
    "put_data": "data.report",
    "put_environment": "environment.lock",
    "put_commit": "commit.pin",
    "put_file": "checkpoint.upload",
    "put_output": "output.upload",
    "put_outputs": "output.upload",
    "ship": "metrics.ship",
    "ship_events": "events.ship",
    "ship_logs": "logs.ship",
    "ship_metrics": "metrics.ship",
}
"""Actions of agents' operations; the others read."""


def action_of(operation: str, method: str) -> str:
    """Return the action in the audit log of an operation.

    Args:
        operation: name of its function; empty: there is none.
    """
    if operation in ACTIONS:
        return ACTIONS[operation]
    if not operation or method in ("GET", "HEAD") or operation in READERS:
        return READ
    verb, _, kind = operation.partition("_")
    return f"{kind}.{verb}"


def note_refusal(connection: HTTPConnection, refusal: RefusalError, error: Exception) -> None:
    """Add to the audit log a request that was refused for want of a right or of a credential, or
    that was answered as if there were nothing, for want of the right to see it."""
    scope = connection.scope
    if scope["path"].startswith(f"{AGENT_PREFIX}/"):
        note_agent_refusal(connection, refusal, error)
        return
    hidden_in = error.hidden_in if isinstance(error, NotFoundError) else None
    if refusal.status not in (401, 403) and hidden_in is None:
        return
    operation, parameters = _operation(scope)
    action = action_of(operation, scope.get("method", "GET"))
    name = scope["path"] if action == READ else next(reversed(parameters.values()), None)
    if not SECRETS.isdisjoint(parameters):
        name = HIDDEN
    project = error.project if isinstance(error, ForbiddenError) else hidden_in
    detail = "it is invisible to the user" if hidden_in is not None else refusal.detail
    coordinator_of(connection).audit.refused(
        Refusal(
            caller=scope.get("trainhall.principal"),
            address=address_of(connection),
            action=action,
            name=name,
            project=project,
            outcome="unauthenticated" if refusal.status == 401 else "forbidden",
            detail=detail,
        )
    )


def note_agent_refusal(connection: HTTPConnection, refusal: RefusalError, error: Exception) -> None:
    """Add to the audit log an agent's request whose credential was refused, or that was answered as
    if there were nothing, as another node holds it. One without a credential is not noted."""
    scope = connection.scope
    operation, parameters = _operation(scope)
    is_denied = refusal.status in (401, 403, 410)
    given = operation == "join" or "authorization" in connection.headers
    if not (isinstance(error, NotHeldError) or (is_denied and given)):
        return
    action = AGENT_ACTIONS.get(operation, READ)
    coordinator_of(connection).audit.refused(
        Refusal(
            caller=None,
            address=address_of(connection),
            action=action,
            name=scope["path"] if action == READ else parameters.get("job_id"),
            project=None,
            outcome="unauthenticated" if is_denied else "forbidden",
            detail=refusal.detail,
            is_agent=True,
            node=scope.get("trainhall.node"),
        )
    )


def _operation(scope: Scope) -> tuple[str, dict[str, str]]:
    """Return the name of the function that a request is for, and the parameters in its path."""
    found = scope if "endpoint" in scope else _matched(scope["app"].router.routes, scope)
    if found is None or "endpoint" not in found:
        return "", {}
    return found["endpoint"].__name__, dict(found.get("path_params", {}))


def _matched(routes: Sequence[BaseRoute], scope: Scope) -> MutableMapping[str, Any] | None:
    """Return what the route of a request, which has not taken it yet, would add to its scope."""
    for route in routes:
        match, found = route.matches(scope)
        if match is Match.FULL:
            # FastAPI keeps the routes of a router that was included within one of its own.
            inner = getattr(route, "effective_candidates", None)
            return found if inner is None else _matched(inner(), scope)
    return None
