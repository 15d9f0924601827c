"""`trainhall bench`: collectives measured, simulated and drawn.

It imports `base` and `distributed`.
"""
