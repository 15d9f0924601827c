"""Old runs of other trackers; imports `cli.base`, and the reader of event files of `agent`."""
