"""A cluster without hosts: nodes that speak the real protocol to the real coordinator, in memory.

    clock      time that is advanced by hand, or that begins in the past and catches up
    chance     seeded randomness: one stream for each thing, so that none disturbs another
    channel    the connection between an agent and the gateway
    node       what a host says of itself and takes up
    network    a coordinator and its nodes, connected
    host       a node whose attempts go through their phases as time passes
    work       what the ranks of an attempt do over time, on all their hosts together
    training   the work of a task: steps, evaluations, checkpoints
    script     the work of a script
    curves     the numbers they measure
    output     the words they write
    spool      what a rank wrote and the coordinator has not acknowledged yet
    saved      the checkpoints they write
    gpu        what a device reads under its load
    cluster    hosts, what runs on them and the coordinator, driven by the clock
    jobs       specs as a team submits them
    scenario   what happens when
    mock       all of it behind the web application

Tests drive the same parts by hand, a moment at a time.
"""
