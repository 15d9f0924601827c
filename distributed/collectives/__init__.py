"""Collective algorithms as data. It imports neither torch nor other packages.

A schedule (`schedule`) says what every rank sends and receives in every round; one file holds one
algorithm and what it costs. `simulate` runs any schedule step by step and proves it, `cost`
predicts its time, and `draw` draws it.
"""
