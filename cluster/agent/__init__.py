"""The agent of a host: a daemon that launches attempts, and a shim that supervises their ranks.

It imports `wire` and the torch-free parts of `training`, and nothing of the server side.
"""
