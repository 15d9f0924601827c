"""The coordinator's end of the agents' connections; imports `checkpoints` and `snapshot`."""
