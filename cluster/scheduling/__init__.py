"""Scheduling: pure functions from the cluster's state to next jobs and reasons for waiting.

`scheduler` goes through the queue in its order, with the devices of `supply` and
the limits of `quota_use`, places gangs (`placement`), preempts jobs (`preemption`) and reserves
devices for the first that waits (`reservation`), which shorter jobs may borrow (`backfill`).
`queue` describes it as text on demand.

It imports `access`, `jobs`, `lifecycle`, `nodes`, `queue`, `secrets` and `snapshot`.
"""
