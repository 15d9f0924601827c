"""A module of a user's that does not import."""

import no_such_library  # type: ignore[import-not-found]  # noqa: F401
