"""Routes of users, groups and projects; imports what `api.routes` does."""
