"""The coordinator's end of the agents' connections; imports all but decisions."""
