"""The base of all messages between a rank, its shim and the coordinator."""

from pydantic import BaseModel, ConfigDict

from trainhall.documented import Documented


class LinkModel(Documented, BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)
