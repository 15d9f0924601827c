"""The commands that users give to a node, and what keeps it from each."""

from enum import StrEnum

from trainhall.cluster.access.principal import Principal
from trainhall.db.models import Node


class NodeCommand(StrEnum):
    DRAIN = "drain"
    UNDRAIN = "undrain"
    REMOVE = "remove"


def refused_commands(node: Node, reader: Principal) -> dict[NodeCommand, str]:
    """Return the commands that would have no effect, or that the reader may not give, each with the
    reason as a sentence."""
    if not reader.is_admin:
        return dict.fromkeys(NodeCommand, "It takes an admin.")
    if node.removing:
        return dict.fromkeys(NodeCommand, "It is being removed.")
    return {NodeCommand.UNDRAIN: "It is not drained."} if node.drain_reason is None else {}
