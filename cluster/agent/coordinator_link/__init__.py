"""The agent's connection to the coordinator: one websocket, and HTTP for bulk.

It imports `wire`.
"""
