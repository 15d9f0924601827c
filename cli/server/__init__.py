"""Commands that start a coordinator, an agent, or both."""
