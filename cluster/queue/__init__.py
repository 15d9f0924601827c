"""The waiting jobs: their order, and their positions over time.

It imports `lifecycle`.
"""
