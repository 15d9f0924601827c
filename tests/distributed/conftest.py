"""Real ranks for the tests of strategies."""

from collections.abc import Iterator

import pytest
from support.attempts import RankServer, rank_server


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankServer]:
    with rank_server() as server:
        yield server
