"""Alembic's environment: it always works on the connection that it is handed."""

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext

from trainhall.db.migrations.fresh import METADATA
from trainhall.db.types import UtcTime


def render(kind: str, item: Any, _context: AutogenContext) -> str | Literal[False]:
    """Migrations name the database's own types: they must not change when our classes do."""
    return "sa.BigInteger()" if kind == "type" and isinstance(item, UtcTime) else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,
    compare_type=True,
    render_item=render,
)
with context.begin_transaction():
    context.run_migrations()
