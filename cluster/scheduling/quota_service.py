"""Quotas as people ask for them: the limits and the use of projects and users."""

from collections import Counter

from trainhall.cluster.access.roles import Action
from trainhall.cluster.lifecycle.states import WAITING_STATES
from trainhall.cluster.nodes.heartbeats import HeartbeatMonitor
from trainhall.cluster.quotas import KINDS, Quotas
from trainhall.cluster.scheduling import views
from trainhall.cluster.scheduling.quota_use import Account, devices_held
from trainhall.cluster.service import Service, ServiceContext
from trainhall.cluster.snapshot.load import load_facts
from trainhall.cluster.snapshot.model import ClusterFacts


class QuotaService(Service):
    def __init__(self, context: ServiceContext, heartbeats: HeartbeatMonitor) -> None:
        super().__init__(context)
        self._heartbeats = heartbeats

    async def list(self) -> views.QuotaPage:
        """Return the limits and the present use of projects and users: an admin's of all, others'
        of their projects and of their own."""
        async with self._db.session() as session:
            facts = await load_facts(session, self._heartbeats)
        page = quota_table(self._options.quotas, facts)
        page.items = [item for item in page.items if self._is_visible(item)]
        return page

    def _is_visible(self, quota: views.Quota) -> bool:
        if quota.kind == "user":
            return self._caller.is_admin or quota.name == self._caller.user
        return self._caller.may(Action.READ, quota.name)


def quota_table(quotas: Quotas, facts: ClusterFacts) -> views.QuotaPage:
    """List every project and user that holds devices, waits for some or has a quota of its own."""
    used: Counter[Account] = Counter()
    waiting: Counter[Account] = Counter()
    held = devices_held(facts)
    for job in facts.jobs:
        for what, name in (("project", job.project), ("user", job.user)):
            if name is not None:
                used[what, name] += held[job.id]
                waiting[what, name] += job.state in WAITING_STATES
    accounts = {account for account in used if used[account] or waiting[account]}
    accounts.update((kind, name) for kind in KINDS for name in quotas.own(kind))
    items = [
        views.Quota(
            kind=kind,
            name=name,
            limit=quotas.limit(kind, name),
            used=used[kind, name],
            waiting=waiting[kind, name],
        )
        for kind, name in sorted(accounts)
    ]
    others = views.QuotaOfOthers(**{kind: quotas.others(kind) for kind in KINDS})
    return views.QuotaPage(items=items, next_cursor=None, others=others)
