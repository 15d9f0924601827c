"""`trainhall run`: a training on this host, without a coordinator.

It imports `jobs`, `plan`, `spec`.
"""
