"""The shim: supervises an attempt's ranks on one host and outlives the agent.

It imports `os_support` and `training.link`; what it has to say goes through files.
"""
