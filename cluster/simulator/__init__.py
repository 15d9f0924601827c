"""The seeded simulator: the coordinator as it is in production, and a world that fails around it.

    loop        virtual time, and processes that can be killed where they stand
    clock       clocks that jump and sleep
    database    SQLite in memory, on a disk that is slow or refuses
    network     delay, loss, doubling, reordering, partitions
    ranks       ranks as models, and the groups in which they meet
    shim        the shim as a model, around the real bookkeeping of its ranks
    host        a host, and its agent: the real decisions and the real connection
    faults      what goes wrong, and when
    world       all of it together, with its users
    checks      what must hold all the same, invariant by invariant
    story       what happened, in words
    run         one seed; `scripts/simulate.py` runs many

`cluster/simulation` is another thing: mock mode, a cluster to look at.
"""
