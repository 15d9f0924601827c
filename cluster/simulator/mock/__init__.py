"""Mock mode: a cluster to look at. Its hosts speak the real protocol to the real coordinator, in
memory, and move only when a turn is taken, so that 45 minutes of history take seconds.

    channel      the connection between an agent and the gateway
    node         the report of a host, and the desired state that it takes up
    network      a coordinator and its nodes, connected
    host         a node whose attempts go through their phases as time passes
    cluster      hosts, their ranks and the coordinator, driven by the clock
    jobs         specs as a team submits them
    scenario     when jobs, commands and troubles come
    folder       the temporary folder of its data
    coordinator  all of it behind the web application

Tests drive the same parts by hand, a moment at a time. It imports `workload`, and not `world`.
"""
