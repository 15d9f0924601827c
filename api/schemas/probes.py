"""Responses of the probes."""

from trainhall.db.views import View


class Health(View):
    """The process answers."""

    status: str
    version: str
    simulated: bool
    """Mock mode: hosts, jobs and all their figures are made up, and nothing is run."""


class Readiness(View):
    """The coordinator serves; its database answers."""

    status: str
