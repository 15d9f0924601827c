"""Faults on real clusters, as `make chaos` and the tests play them (docs/chaos.md).

catalogue   every scenario
stage       what a scenario is played on: a cluster, chance from a seed, a report
clusters    a coordinator and hosts as processes; `network` gives each a network of its own
jobs        jobs whose ranks write down what they do, for comparison
faults      the scenarios
guard       ends all of it, however the process that plays ends
"""
