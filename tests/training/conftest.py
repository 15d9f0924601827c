"""Real ranks for the tests of the training engine."""

from collections.abc import Iterator

import pytest
import torch
from support.attempts import RankServer, rank_server


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine the threads of a small model wait for each other more than they compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankServer]:
    """Starts attempts of real ranks; one process serves all tests."""
    with rank_server() as server:
        yield server
