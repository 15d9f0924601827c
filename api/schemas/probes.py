"""What the probes answer."""

from trainhall.api.schemas.base import Schema


class Health(Schema):
    """The process answers."""

    status: str
    version: str


class Readiness(Schema):
    """The coordinator serves; its database answers."""

    status: str
