"""`trainhall server` with the database of `support.database`, which costs a third of its time."""

from functools import partial

from support.database import open_database

from trainhall.api import startup
from trainhall.cli.main import main as trainhall


def main() -> None:
    vars(startup)["Database"] = partial(open_database, side_by_side=True)
    trainhall()
