"""Routes: they parse, authorise and delegate; imports `openapi` and `schemas`."""
