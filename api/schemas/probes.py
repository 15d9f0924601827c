"""Responses of the probes."""

from trainhall.api.schemas.base import Schema


class Health(Schema):
    """The process answers."""

    status: str
    version: str
    simulated: bool
    """Mock mode: hosts, jobs and all their figures are made up, and nothing is run."""


class Readiness(Schema):
    """The coordinator serves; its database answers."""

    status: str
