"""/metrics: the cluster's figures and the server's own, in Prometheus' text format."""

from prometheus_client import generate_latest

from trainhall.api.observe import RequestFigures
from trainhall.db.database import Database
from trainhall.monitoring import prometheus

CONTENT_TYPE = "text/plain; version=0.0.4"


async def exposition(database: Database, figures: RequestFigures) -> bytes:
    return await prometheus.exposition(database) + generate_latest(figures.registry)
