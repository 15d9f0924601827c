"""Running the migrations on an open connection, inside its transaction."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

FOLDER = Path(__file__).parent


def upgrade(connection: Connection) -> None:
    """Bring the tables to the newest revision."""
    command.upgrade(config(connection), "head")


def config(connection: Connection | None = None) -> Config:
    configuration = Config()
    configuration.set_main_option("script_location", str(FOLDER))
    configuration.attributes["connection"] = connection
    return configuration
