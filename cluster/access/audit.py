"""Rows of the audit log, each added in the transaction of the change that it tells of."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.principal import Principal
from trainhall.db.accounts import AuditEntry
from trainhall.db.sanitize import sanitize_json, sanitize_text

DONE = "done"
"""Outcome of a change; that of a refusal says why."""
HIDDEN = "(hidden)"
MAX_VALUE = 500
"""Characters of a changed text that are kept."""
_SECRET = ("password", "secret", "token", "code", "url", "env")
"""Parts of the names of fields whose values are never kept."""

Changes = Mapping[str, tuple[Any, Any]]
"""By field: its values before and after."""


def record(
    session: AsyncSession,
    caller: Principal,
    action: str,
    now: datetime,
    *,
    name: str | None = None,
    project: str | None = None,
    changes: Changes | None = None,
    detail: str = "",
) -> None:
    """Add what a caller changes to the audit log; the coordinator's own work is not kept there.

    Args:
        action: kind of the object and what is done to it, such as `job.cancel`.
        name: id or name of the object.
        changes: fields; those that stay as they are, are left out, and secret values hidden.
        detail: in words.
    """
    if not caller.user:
        return
    session.add(entry(caller, action, now, name, project, DONE, detail, changes))


def entry(
    caller: Principal | None,
    action: str,
    now: datetime,
    name: str | None,
    project: str | None,
    outcome: str,
    detail: str,
    changes: Changes | None = None,
) -> AuditEntry:
    """Return a row of the log.

    Args:
        caller: None: nobody knows.
    """
    kind, _, _ = action.rpartition(".")
    return AuditEntry(
        time=now,
        user=caller.user if caller is not None and caller.user else None,
        how=caller.how if caller is not None else "none",
        credential=sanitize_text(caller.credential, 128) if caller and caller.credential else None,
        address=caller.address[:64] if caller is not None and caller.address else None,
        action=action[:64],
        kind=kind or None,
        object=sanitize_text(name, 255) if name is not None else None,
        project=project,
        outcome=outcome,
        detail=sanitize_text(detail, 2 * MAX_VALUE),
        fields=_changed(changes or {}),
    )


def _changed(changes: Changes) -> dict[str, list[Any]] | None:
    kept = {
        name: [_shown(name, before), _shown(name, after)]
        for name, (before, after) in changes.items()
        if before != after
    }
    return kept or None


def _shown(name: str, value: Any) -> Any:
    if value is None:
        return None
    if any(part in name.lower() for part in _SECRET):
        return HIDDEN
    if isinstance(value, str):
        return sanitize_text(value, MAX_VALUE)
    return sanitize_json(value)
