"""The simulated cluster, around the coordinator as it is in production.

Hosts, agents, shims, ranks and network are those of both modes: `world` runs them by seed in
virtual time, with faults that are searched for violations; `mock` is a cluster to show, without
those faults and with `workload` on its ranks. It may import all of `cluster`.
"""
