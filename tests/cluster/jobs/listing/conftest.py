"""A list of jobs, on each database."""

import pytest
from support.cluster.simulated import SimulatedCluster
from support.storage.listed_jobs import ListedJobs


@pytest.fixture
def jobs(cluster: SimulatedCluster) -> ListedJobs:
    return ListedJobs(cluster.db, cluster.coordinator.jobs)
