"""Every scenario, in an order in which neighbours share a cluster."""

from chaos.clusters import why_no_memory_limit
from chaos.commands import random_commands
from chaos.faults.coordinator import absent_coordinator, killed_coordinator
from chaos.faults.disk import full_agent_disk, full_coordinator_disk, stopped_postgres
from chaos.faults.elastic import hung_over_hosts, killed_while_regrouping, lost_in_place
from chaos.faults.host import (
    frozen_agent,
    killed_agent,
    lost_host_of_two,
    partition,
    powered_off_host,
    short_partition,
)
from chaos.faults.rank import ended_script, hung_rank, killed_rank, out_of_memory
from chaos.faults.sweep import killed_coordinator_of_a_sweep
from chaos.network import why_not_root
from chaos.stage import Scenario

SCENARIOS = (
    # On a cluster with the times of production.
    Scenario("coordinator killed", killed_coordinator, 200, few=2),
    Scenario("coordinator away", absent_coordinator, 600, few=2),
    Scenario("sweep", killed_coordinator_of_a_sweep, 20, few=2, slow=True),
    Scenario("agent killed", killed_agent, 50, slow=True),
    Scenario("rank killed", killed_rank, 200),
    Scenario("rank hung", hung_rank, 20, slow=True),
    Scenario("rank ended", ended_script, 5, slow=True),
    Scenario("out of memory", out_of_memory, 3, slow=True, obstacle=why_no_memory_limit),
    # On one whose elastic jobs grow soon.
    Scenario("commands", random_commands, 500, few=3),
    # On hosts with a network of their own, which are given up after seconds.
    Scenario("host powered off", powered_off_host, 10, slow=True),
    Scenario("agent frozen", frozen_agent, 10),
    Scenario("one of two hosts", lost_host_of_two, 10),
    Scenario("partition", partition, 10, obstacle=why_not_root),
    Scenario("short partition", short_partition, 20, slow=True, obstacle=why_not_root),
    # On three hosts that train one job, which goes on in place.
    Scenario("lost in place", lost_in_place, 20, slow=True),
    Scenario("killed while regrouping", killed_while_regrouping, 20, slow=True),
    Scenario("hung over hosts", hung_over_hosts, 10, slow=True),
    # On small disks.
    Scenario("full disk of a host", full_agent_disk, 5, slow=True, obstacle=why_not_root),
    Scenario(
        "full disk of the coordinator", full_coordinator_disk, 5, slow=True, obstacle=why_not_root
    ),
    # On Postgres.
    Scenario("Postgres stopped", stopped_postgres, 10, slow=True),
)
