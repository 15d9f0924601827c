"""The planner: memory and step time of a job under every strategy, before it runs."""
