"""Views of positions in the queue, as the REST API returns them."""

from trainhall.db.views import Time, View


class QueuePosition(View):
    """Position that a job had in the queue for a time."""

    since: Time
    until: Time | None
    """Null: it still has it."""
    position: int
    """1 is next."""


class QueueHistory(View):
    """Positions of a job in the queue over time."""

    items: list[QueuePosition]
    """The oldest first; a gap is a time in which it did not wait."""
