"""Commands that start a coordinator, an agent, or both; imports `base`, `spec` and `jobs`."""
