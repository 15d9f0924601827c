"""Real ranks for the tests that need a GPU."""

from collections.abc import Iterator

import pytest
from support.attempts import RankServer, rank_server


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankServer]:
    with rank_server() as server:
        yield server
