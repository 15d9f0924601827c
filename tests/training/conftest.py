"""Real ranks for the tests of the training engine."""

from collections.abc import Iterator

import pytest
from support.attempts import RankServer, rank_server


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankServer]:
    """Starts attempts of real ranks; one process serves all tests."""
    with rank_server() as server:
        yield server
