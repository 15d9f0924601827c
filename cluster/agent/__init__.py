"""The agent of a host: a daemon that launches attempts, and a shim that supervises their ranks.

It imports neither the database nor the server side: `wire`, and the torch-free parts of `training`.
"""
