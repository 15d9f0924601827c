"""Routes with the contracts of other trackers; imports nothing of the other routes."""
