"""The planner: memory and step time under every strategy, before a run; imports `loop`."""
