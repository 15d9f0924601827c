"""`trainhall verify`: every strategy against one process; imports `local` and what that may."""
