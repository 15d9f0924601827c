"""Sessions beside running jobs: who may begin one, and where its tunnel ends.

It imports `jobs`, `lifecycle`, `wire`.
"""
