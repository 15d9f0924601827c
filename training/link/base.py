"""The base of all messages between a rank, its shim and the coordinator."""

from pydantic import BaseModel, ConfigDict


class LinkModel(BaseModel):
    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)
