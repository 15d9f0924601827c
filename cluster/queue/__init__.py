"""The waiting jobs: their order, their positions over time, and durations of similar jobs.

It imports `access` and `lifecycle`.
"""
