"""Two users of the project vision."""

from types import MappingProxyType

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import Role

MARIA = Principal(
    "maria", False, "token", "u-maria", roles=MappingProxyType({"vision": Role.MAINTAINER})
)
OTTO = Principal("otto", False, "token", "u-otto", roles=MappingProxyType({"vision": Role.MEMBER}))
