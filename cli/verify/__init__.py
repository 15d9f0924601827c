"""`trainhall verify`: every strategy against one process."""
