"""Views of secrets, as the REST API returns them: never their values."""

from trainhall.db.views import Page, Time, View


class Secret(View):
    """Secret that is set, without its value."""

    name: str
    """Environment variable that ranks get."""
    created_at: Time
    updated_at: Time
    """When its value was set last."""
    updated_by: str
    """Name of the user who set it."""


class SecretPage(Page[Secret]):
    """Secrets by name."""
