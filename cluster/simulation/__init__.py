"""A cluster without hosts: nodes that speak the real protocol to the real coordinator, in memory.

    clock      time that is advanced by hand, or that begins in the past and catches up
    chance     seeded randomness: one stream for each thing, so that none disturbs another
    channel    the connection between an agent and the gateway
    node       what a host says of itself and takes up
    network    a coordinator and its nodes, connected
    host       a node whose attempts go through their phases as time passes
    workload   what the ranks of an attempt do over time, on all their hosts together
    cluster    hosts, what runs on them and the coordinator, driven by the clock
    jobs       specs as a team submits them
    scenario   what happens when
    mock       all of it behind the web application

Tests drive the same parts by hand, a moment at a time.
"""
