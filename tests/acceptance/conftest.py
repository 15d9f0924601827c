"""Clusters of real processes, on both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster.cluster import Cluster, running_cluster


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def killed_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A coordinator and an agent with four CPU slots."""
    folder = tmp_path_factory.mktemp("killed")
    url = f"sqlite:///{folder / 'trainhall.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("new_postgres")()
    with running_cluster(folder / "cluster", url, slots=4, forks_scripts=True) as running:
        yield running


@pytest.fixture
def cluster(killed_cluster: Cluster) -> Iterator[Cluster]:
    """The module's own, for a test that kills some of it and starts it again."""
    yield killed_cluster
    # A test that failed in between has not started it again.
    killed_cluster.start_what_ended()
    killed_cluster.cancel_everything()


@pytest.fixture
def cluster_of_its_own(tmp_path: Path) -> Iterator[Cluster]:
    """For a test of what a host is left with, which its coordinator's database is nothing to."""
    with running_cluster(tmp_path / "cluster", slots=4) as running:
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
