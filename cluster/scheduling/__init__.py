"""Who runs next, where, and why the others wait: pure functions of the state of the cluster.

`scheduler` goes through the queue in the order of `queue_order`, with what `supply` has and
`quota_use` allows, places gangs (`placement`), has others make room (`preemption`) and reserves
devices for the first that waits (`reservation`). `queue` tells it in words, when somebody asks.
"""
