"""Clusters of real processes, on both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster import Cluster, running_cluster


@pytest.fixture
def cluster(tmp_path: Path, database_url: str) -> Iterator[Cluster]:
    """A coordinator and an agent with four CPU slots, for a test that kills some of it."""
    with running_cluster(tmp_path / "cluster", database_url, slots=4) as running:
        yield running


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def module_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """The same for tests that only use it: starting one takes as long as several of them."""
    folder = tmp_path_factory.mktemp("cluster")
    url = f"sqlite:///{folder / 'trainhall.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("new_postgres")()
    with running_cluster(folder / "cluster", url) as running:
        yield running


@pytest.fixture
def shared_cluster(module_cluster: Cluster) -> Iterator[Cluster]:
    """The module's cluster, with every device free again after the test."""
    yield module_cluster
    module_cluster.cancel_everything()
