"""Common parts of every service of the coordinator."""

from dataclasses import dataclass

from trainhall.cluster.notifier import Notifier
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.ports import Clock, Ids
from trainhall.db.database import Database


@dataclass(frozen=True)
class ServiceContext:
    db: Database
    clock: Clock
    ids: Ids
    options: ClusterOptions
    notifier: Notifier


class Service:
    def __init__(self, context: ServiceContext) -> None:
        self._db = context.db
        self._clock = context.clock
        self._ids = context.ids
        self._options = context.options
        self._notifier = context.notifier
