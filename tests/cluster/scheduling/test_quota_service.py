"""Who holds what of the quotas, with reconciler, services and simulated nodes."""

from dataclasses import replace

from support.cluster.facts import node_facts as node
from support.cluster.scheduling import cluster, job, running
from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.quotas import Quotas
from trainhall.cluster.scheduling.quota_service import quota_table


def test_quota_table_lists_holders_waiters_and_quotas() -> None:
    facts = cluster(
        [node("a", 8)],
        [
            running("r", 1, {"a": [0, 1, 2]}, user="ada", project="vision"),
            running("s", 2, {"a": [3]}, user="ada"),
        ],
        [job(3, 8, user="bob"), job(4, 1, project="vision"), job(5, 1)],
    )
    quotas = Quotas(projects={"vision": 4, "text": 2}, users={"*": 8, "ada": 0})
    table = quota_table(quotas, facts)
    assert [(q.kind, q.name, q.limit, q.used, q.waiting) for q in table.items] == [
        ("project", "text", 2, 0, 0),
        ("project", "vision", 4, 3, 1),
        ("user", "ada", 0, 4, 0),
        ("user", "bob", 8, 0, 1),
    ]
    assert table.others.model_dump() == {"project": None, "user": 8}
    without = quota_table(Quotas(), facts)
    assert [(q.name, q.limit, q.used) for q in without.items] == [
        ("vision", None, 3), ("ada", None, 4), ("bob", None, 0),
    ]  # fmt: skip
    assert without.others.model_dump() == {"project": None, "user": None}


async def test_quotas_follow_starts_and_ends(cluster: SimulatedCluster) -> None:
    quotas = cluster.coordinator.quotas
    quotas._options = replace(cluster.options, quotas=Quotas(users={"*": 3}))
    await cluster.add_node("alpha", 2)
    first = await cluster.submit(workers=2, user="ada")
    await cluster.submit(workers=1, user="bob", project="vision")
    await cluster.run_until(first, "running")

    async def usage() -> list[tuple[str, int, int]]:
        table = await quotas.list()
        return [(item.name, item.used, item.waiting) for item in table.items]

    assert await usage() == [
        ("default", 2, 0), ("vision", 0, 1), ("ada", 2, 0), ("bob", 0, 1),
    ]  # fmt: skip
    await cluster.finish(first)
    await cluster.work(2)
    assert await usage() == [("vision", 1, 0), ("bob", 1, 0)]
