"""The simulated cluster, around the coordinator as it is in production.

It may import all of `cluster`.

Of both modes:

    chance      seeded randomness: one stream for each thing, so that none disturbs another
    clock       clocks that are advanced by hand, catch up, jump and sleep
    attempts    the attempts of a host, and the interpreter of the agent's actions
    spool       the records of a rank, until the coordinator has acknowledged them
    workload    curves, output, gradients and checkpoints of a job, and the devices that it loads
    mock        mock mode: a cluster to look at

Of the search for fatal orders of failures, by seed:

    loop        virtual time, and processes that can be killed where they stand
    database    SQLite in memory, on a disk that is slow or refuses
    network     delay, loss, doubling, reordering, partitions
    ranks       ranks as models, and the groups in which they meet
    shim        the shim as a model, around the real bookkeeping of its ranks
    host        a host, and its agent: the real decisions and the real connection
    faults      the faults, and when they come
    world       all of it together, with its users
    checks      the invariants
    story       the log of a run
    run         one seed; `scripts/simulate.py` runs many
"""
