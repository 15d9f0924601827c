"""Every scenario, in an order in which neighbours share a cluster."""

from chaos import (
    commands,
    coordinator_faults,
    disk_faults,
    elastic_faults,
    host_faults,
    rank_faults,
)
from chaos.stage import Scenario

SCENARIOS = (
    # On a cluster with the times of production.
    Scenario(
        name="coordinator killed", play=coordinator_faults.killed_coordinator, runs=200, few=2
    ),
    Scenario(name="coordinator away", play=coordinator_faults.absent_coordinator, runs=600, few=2),
    Scenario(name="agent killed", play=host_faults.killed_agent, runs=50, few=1, slow=True),
    Scenario(name="rank killed", play=rank_faults.killed_rank, runs=200, few=1),
    Scenario(name="rank hung", play=rank_faults.hung_rank, runs=20, few=1, slow=True),
    Scenario(name="rank ended", play=rank_faults.ended_script, runs=5, few=1, slow=True),
    Scenario(
        name="out of memory", play=rank_faults.out_of_memory, runs=3, few=1, root=True, slow=True
    ),
    Scenario(name="commands", play=commands.random_commands, runs=500, few=3),
    # On hosts with a network of their own, which are given up after seconds.
    Scenario(name="host powered off", play=host_faults.powered_off_host, runs=10, few=1, slow=True),
    Scenario(name="agent frozen", play=host_faults.frozen_agent, runs=10, few=1),
    Scenario(name="one of two hosts", play=host_faults.lost_host_of_two, runs=10, few=1),
    Scenario(name="partition", play=host_faults.partition, runs=10, few=1, root=True),
    Scenario(
        name="short partition",
        play=host_faults.short_partition,
        runs=20,
        few=1,
        root=True,
        slow=True,
    ),
    # On three hosts that train one job, which goes on in place.
    Scenario(name="lost in place", play=elastic_faults.lost_in_place, runs=20, few=1, slow=True),
    Scenario(
        name="killed while regrouping",
        play=elastic_faults.killed_while_regrouping,
        runs=20,
        few=1,
        slow=True,
    ),
    Scenario(
        name="hung over hosts", play=elastic_faults.hung_over_hosts, runs=10, few=1, slow=True
    ),
    # On small disks.
    Scenario(
        name="full disk of a host",
        play=disk_faults.full_agent_disk,
        runs=5,
        few=1,
        root=True,
        slow=True,
    ),
    Scenario(
        name="full disk of the coordinator",
        play=disk_faults.full_coordinator_disk,
        runs=5,
        few=1,
        root=True,
        slow=True,
    ),
    # On Postgres.
    Scenario(name="Postgres stopped", play=disk_faults.stopped_postgres, runs=10, few=1, slow=True),
)
