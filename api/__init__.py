"""The REST API and websockets.

It imports `cluster`, `monitoring`, `db` and the torch-free `training`.
"""
