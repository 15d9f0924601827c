"""Old runs of other trackers; imports `cli.base` alone."""
