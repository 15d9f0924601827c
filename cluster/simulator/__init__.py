"""The simulated cluster, around the coordinator as it is in production.

`world` runs it by seed in virtual time, with faults that are searched for violations; `mock` is a
cluster to look at. It may import all of `cluster`.
"""
