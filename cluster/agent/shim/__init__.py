"""The shim: supervises ranks on one host and outlives the agent; imports `os_support`."""
