"""The link between a rank and its shim: one folder per attempt and host.

Free of torch; imports `spec` alone.

Nothing here waits for a network or for another process: a rank appends to its own spool files, the
agent tails and ships them, and the shim commands the ranks through one shared page.

    <attempt folder>/
        launch.json                what the agent asked for (`Launch`)
        secrets.json               values of its secrets, until the shim has read them
        profile-<n>.json           a request for a profile of steps (`training.link.profiling`)
        control.bin                one shared page, which the ranks read (`Control`)
        status.json                what the shim last saw (`ShimStatus`), replaced atomically
        comparison.jsonl           of a run under `TracePlan`: a line a step
        progress/<pid>.bin         what a rank's process does right now (`training.link.progress`)
        ranks/<rank>/stdout.log    the rank's output, written by the rank itself; of one
                                   with secrets by the shim, which masks them
        ranks/<rank>/stderr.log
        ranks/<rank>/metrics.bin   metric frames (`MetricSpool`)
        ranks/<rank>/events.jsonl  rank events, one JSON object a line (`EventSpool`)

A metric frame is little-endian:

    magic b"THM1" | payload length u32 | sequence u64 | CRC-32 of the payload u32 | payload

and its payload is a list of tables:

    number of tables u16, then for each table:
    rank i32 (-1: a job-wide series) | rows u32 | columns u16
    for each column: length of the name u16, name in UTF-8
    steps i64[rows] | times f64[rows], seconds since the epoch | values f64[columns][rows]

`trainhall.monitoring` reads the same bytes on the coordinator; the agent forwards them unread.
"""
