"""Services for one caller."""

from copy import copy
from typing import Self

from trainhall.cluster.access.principal import SYSTEM, Principal


class Limited:
    """Base of the services that show and do only what their caller may.

    As the coordinator makes them they are its own, which may everything; routes get them limited
    to the caller of a request.
    """

    _caller: Principal = SYSTEM

    def limited_to(self, caller: Principal) -> Self:
        """Return this service as a caller may use it.

        It is a shallow copy, so both share locks, caches and counters that are objects; a number
        that changes must not be an attribute.
        """
        limited = copy(self)
        limited._caller = caller
        return limited
