"""The shim: supervises an attempt's ranks on one host and outlives the agent."""
