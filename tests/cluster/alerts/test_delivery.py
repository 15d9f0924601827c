"""Messages on their way: stored with their event, sent until they are accepted."""

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest
from sqlalchemy import select
from support.alerts import add_alert, deliver, deliveries, signature_of
from support.cluster.simulated import SimulatedCluster, failure, stalled
from support.database import on_sqlite
from support.receiver import Receiver, mail_server, receiver

from trainhall.cluster.access.principal import SYSTEM
from trainhall.cluster.alerts.service import Scope
from trainhall.cluster.errors import ConflictError, NotFoundError
from trainhall.cluster.lifecycle.alerts import Condition
from trainhall.cluster.lifecycle.jobs import move_job
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode
from trainhall.cluster.lifecycle.states import JobState
from trainhall.cluster.options import AlertOptions
from trainhall.db.alerts import AlertDelivery
from trainhall.training.link.failure import Cause, Failure
from trainhall.training.link.status import Outcome

DAY = 86400.0


async def fail_job(cluster: SimulatedCluster, **more: Any) -> str:
    job_id = await cluster.submit(1, recovery={"max_restarts": 0}, **more)
    await cluster.run_until(job_id, "running")
    await cluster.finish(job_id, Outcome.FAILED, failure())
    assert (await cluster.job(job_id)).state == "failed"
    return job_id


def bodies(target: Receiver) -> list[Any]:
    return [orjson.loads(each.body) for each in target.received]


async def test_webhook_gets_signed_message_of_failed_job(cluster: SimulatedCluster) -> None:
    await cluster.add_node("host")
    async with receiver() as target:
        alert = await add_alert(cluster, f"{target.url}/hook?key=1")
        job_id = await fail_job(cluster)
        await deliver(cluster)
        await deliver(cluster)
    (got,) = target.received
    assert got.path == "/hook?key=1"
    body = orjson.loads(got.body)
    assert body["type"] == "job.failed"
    assert body["data"]["subjects"] == [{"kind": "job", "id": job_id, "name": "test"}]
    assert "“test”" in body["data"]["text"]
    assert "ValueError: bad luck" in body["data"]["text"]
    assert alert.secret is not None
    assert got.headers["webhook-signature"] == signature_of(alert.secret, got.headers, got.body)
    (delivery,) = await deliveries(cluster, alert.id)
    assert delivery.id == got.headers["webhook-id"]
    assert (delivery.state, delivery.status, delivery.tries) == ("delivered", 204, 1)


@on_sqlite
async def test_completed_job_is_reported_where_asked(cluster: SimulatedCluster) -> None:
    await cluster.add_node("host")
    async with receiver() as target:
        await add_alert(cluster, target.url, Condition.JOB_COMPLETED)
        await add_alert(cluster, target.url, Condition.JOB_FAILED)
        job_id = await cluster.submit(1)
        await cluster.run_until(job_id, "running")
        await cluster.finish(job_id)
        await deliver(cluster)
    assert [body["data"]["text"] for body in bodies(target)] == [f"“test” ({job_id}) completed"]


async def test_message_rolls_back_with_its_event(cluster: SimulatedCluster) -> None:
    """Neither is there without the other."""
    await cluster.add_node("host")
    alert = await add_alert(cluster, "http://127.0.0.1:1", Condition.JOB_FAILED)
    job_id = await cluster.submit(1)
    await cluster.run_until(job_id, "running")

    async def fail_and_roll_back() -> None:
        async with cluster.db.transaction() as session:
            assert await move_job(
                session, job_id, JobState.RUNNING, JobState.FAILED,
                reason=Reason.of(ReasonCode.FAILED, failure="x"), now=cluster.clock.now(),
                attempt=1,
            )  # fmt: skip
            raise ConflictError

    with pytest.raises(ConflictError):
        await fail_and_roll_back()
    assert await deliveries(cluster, alert.id) == []


async def test_failed_try_is_repeated_with_same_id(cluster: SimulatedCluster) -> None:
    await cluster.add_node("host")
    async with receiver("500 Oops", "302 Found\r\nLocation: http://127.0.0.1:1") as target:
        alert = await add_alert(cluster, target.url)
        await fail_job(cluster)
        await deliver(cluster)
        (first,) = await deliveries(cluster, alert.id)
        assert (first.state, first.status, first.tries) == ("pending", 500, 1)
        assert first.error is not None
        assert first.error.startswith("HTTP 500")
        await deliver(cluster, 1.0)
        assert len(target.received) == 1, "it waits"
        await deliver(cluster, 5.0)
        (second,) = await deliveries(cluster, alert.id)
        assert second.error == "HTTP 302: redirects are not followed"
        assert (await cluster.coordinator.alerts.get(alert.id)).failing_since is not None
        await deliver(cluster, 10.0)
    (third,) = await deliveries(cluster, alert.id)
    assert (third.state, third.tries, third.error) == ("delivered", 3, None)
    assert {each.headers["webhook-id"] for each in target.received} == {first.id}
    assert len({each.headers["webhook-timestamp"] for each in target.received}) == 3
    assert (await cluster.coordinator.alerts.get(alert.id)).failing_since is None


@on_sqlite
async def test_messages_behind_a_failed_one_wait_with_it(cluster: SimulatedCluster) -> None:
    await cluster.add_node("host")
    async with receiver("503 Busy") as target:
        alert = await add_alert(cluster, target.url)
        for _ in range(3):
            await cluster.coordinator.alerts.test(alert.id)
        await deliver(cluster)
        assert len(target.received) == 1
        await deliver(cluster, 5.0)
    ids = [each.headers["webhook-id"] for each in target.received]
    assert ids == [ids[1], *sorted(ids[1:])]


async def test_alert_is_disabled_after_three_days(cluster: SimulatedCluster) -> None:
    alert = await add_alert(cluster, "http://127.0.0.1:1")
    await cluster.coordinator.alerts.test(alert.id)
    await deliver(cluster)
    await deliver(cluster, 2.9 * DAY)
    assert (await cluster.coordinator.alerts.get(alert.id)).enabled
    await cluster.coordinator.alerts.test(alert.id)
    await deliver(cluster, 0.2 * DAY)
    found = await cluster.coordinator.alerts.get(alert.id)
    assert not found.enabled
    assert found.reason.startswith("its target failed for 3 days: ")
    log = await deliveries(cluster, alert.id)
    assert [(each.condition, each.state) for each in log] == [
        ("alert.disabled", "failed"), ("alert.test", "failed"), ("alert.test", "failed"),
    ]  # fmt: skip
    enabled = await cluster.coordinator.alerts.change(alert.id, {"enabled": True})
    assert (enabled.enabled, enabled.reason, enabled.secret) == (True, "", None)


@on_sqlite
async def test_target_that_is_gone_disables_at_once(cluster: SimulatedCluster) -> None:
    async with receiver("410 Gone") as target:
        alert = await add_alert(cluster, target.url)
        await cluster.coordinator.alerts.test(alert.id)
        await deliver(cluster)
    found = await cluster.coordinator.alerts.get(alert.id)
    assert found.reason.startswith("its target answered that it is gone: HTTP 410")


@on_sqlite
async def test_private_address_is_refused_when_it_is_connected(cluster: SimulatedCluster) -> None:
    async with receiver() as target:
        alert = await add_alert(cluster, target.url)
        cluster.options = replace(cluster.options, alerts=AlertOptions())
        cluster.start_coordinator()
        await cluster.coordinator.alerts.test(alert.id)
        await deliver(cluster)
    (delivery,) = await deliveries(cluster, alert.id)
    assert target.received == []
    assert delivery.error is not None
    assert "127.0.0.1 is not a public address" in delivery.error


@on_sqlite
async def test_name_that_cannot_be_resolved_is_a_failure(cluster: SimulatedCluster) -> None:
    alert = await add_alert(cluster, "http://a..example:1/hook")
    await cluster.coordinator.alerts.test(alert.id)
    await deliver(cluster)
    (delivery,) = await deliveries(cluster, alert.id)
    assert (delivery.state, delivery.tries) == ("pending", 1)
    assert delivery.error


@on_sqlite
async def test_scopes_choose_jobs(cluster: SimulatedCluster) -> None:
    await cluster.add_node("host")
    async with receiver() as target:
        await add_alert(cluster, f"{target.url}/p", scope=Scope("project", "vision"))
        await add_alert(cluster, f"{target.url}/u", scope=Scope("user", "maria"))
        mine = await fail_job(cluster, project="vision", user="maria")
        await add_alert(cluster, f"{target.url}/j", scope=Scope("job", mine))
        await fail_job(cluster, project="vision", user="ann")
        await fail_job(cluster)
        await deliver(cluster)
    assert sorted(each.path for each in target.received) == ["/p", "/p", "/u"]


@on_sqlite
async def test_disabled_alert_reports_nothing_but_tests(cluster: SimulatedCluster) -> None:
    await cluster.add_node("host")
    async with receiver() as target:
        alert = await add_alert(cluster, target.url)
        changed = await cluster.coordinator.alerts.change(alert.id, {"enabled": False})
        assert changed.reason == "disabled by a user"
        await fail_job(cluster)
        await cluster.coordinator.alerts.test(alert.id)
        await deliver(cluster)
    assert [body["type"] for body in bodies(target)] == ["alert.test"]


async def test_lost_node_is_reported(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("gpu-1")
    async with receiver() as target:
        await add_alert(cluster, target.url, Condition.NODE_DOWN)
        await cluster.disconnect(node)
        cluster.clock.advance(100.0)
        await cluster.settle()
        await deliver(cluster)
    (body,) = bodies(target)
    assert body["data"]["text"].startswith("node gpu-1 is down: no heartbeat for")
    assert body["data"]["subjects"][0]["kind"] == "node"


@on_sqlite
async def test_hang_is_reported_as_stuck_job(cluster: SimulatedCluster) -> None:
    await cluster.add_node("host")
    async with receiver() as target:
        await add_alert(cluster, target.url, Condition.JOB_STUCK)
        job_id = await cluster.submit(1)
        await cluster.run_until(job_id, "running")
        hang = Failure(rank=0, cause=Cause.HANG, message="hang: rank 0 took no step for 30 s")
        await cluster.finish(job_id, Outcome.FAILED, hang)
        await cluster.finish(job_id, Outcome.FAILED, failure())
        await deliver(cluster)
    texts = [body["data"]["text"] for body in bodies(target)]
    assert texts == [f"“test” ({job_id}) was stuck: hang: rank 0 took no step for 30 s"]


@on_sqlite
async def test_hang_over_hosts_is_reported_once(cluster: SimulatedCluster) -> None:
    nodes = [await cluster.add_node(f"host{n}", slots=1) for n in range(2)]
    async with receiver() as target:
        await add_alert(cluster, target.url, Condition.JOB_STUCK)
        job_id = await cluster.submit(2)
        await cluster.run_until(job_id, "running")
        for rank, node in enumerate(nodes):
            node.running(job_id).stall = stalled(rank, parts=rank)
        await cluster.heartbeat()
        await cluster.work(3)
        await deliver(cluster)
    assert [body["type"] for body in bodies(target)] == ["job.stuck"]


@on_sqlite
async def test_slack_and_mail_get_messages(cluster: SimulatedCluster) -> None:
    mails: list[str] = []
    async with receiver() as target, mail_server(mails) as smtp:
        options = AlertOptions(private_targets=True, smtp_url=smtp, mail_from="hall@lab")
        cluster.options = replace(cluster.options, alerts=options)
        cluster.start_coordinator()
        slack = await add_alert(cluster, f"{target.url}/services/x", kind="slack")
        mail = await add_alert(cluster, "mailto:maria@lab", kind="mail")
        for alert in (slack, mail):
            assert alert.secret is None
            await cluster.coordinator.alerts.test(alert.id)
        await deliver(cluster)
    assert bodies(target)[0]["text"].startswith("*Test alert*\nthis is a test")
    assert "webhook-signature" not in target.received[0].headers
    assert "Subject: Test alert: a" in mails[0]
    assert [each.state for each in await deliveries(cluster, mail.id)] == ["delivered"]


@on_sqlite
async def test_refused_mail_is_tried_again(cluster: SimulatedCluster) -> None:
    mails: list[str] = []
    async with mail_server(mails, "550 no such user") as smtp:
        options = AlertOptions(smtp_url=smtp, mail_from="hall@lab")
        cluster.options = replace(cluster.options, alerts=options)
        cluster.start_coordinator()
        alert = await add_alert(cluster, "mailto:nobody@lab", kind="mail")
        await cluster.coordinator.alerts.test(alert.id)
        await deliver(cluster)
    (delivery,) = await deliveries(cluster, alert.id)
    assert delivery.state == "pending"
    assert delivery.error is not None
    assert "no such user" in delivery.error


@on_sqlite
async def test_password_is_not_sent_in_the_clear(cluster: SimulatedCluster) -> None:
    async with mail_server([]) as smtp:
        secret = smtp.replace("smtp://", "smtp://hall:word@")
        options = AlertOptions(smtp_url=secret, mail_from="hall@lab")
        cluster.options = replace(cluster.options, alerts=options)
        cluster.start_coordinator()
        alert = await add_alert(cluster, "mailto:maria@lab", kind="mail")
        await cluster.coordinator.alerts.test(alert.id)
        await deliver(cluster)
    (delivery,) = await deliveries(cluster, alert.id)
    assert delivery.error is not None
    assert "STARTTLS" in delivery.error


@on_sqlite
async def test_mock_mode_sends_nothing(cluster: SimulatedCluster) -> None:
    cluster.options = replace(cluster.options, alerts=AlertOptions(simulated=True))
    async with receiver() as target:
        cluster.options = replace(
            cluster.options, alerts=replace(cluster.options.alerts, private_targets=True)
        )
        cluster.start_coordinator()
        alert = await add_alert(cluster, target.url)
        await cluster.coordinator.alerts.test(alert.id)
        await deliver(cluster)
    assert target.received == []
    assert [each.state for each in await deliveries(cluster, alert.id)] == ["simulated"]


async def test_browsers_follow_numbered_notifications(cluster: SimulatedCluster) -> None:
    feed = cluster.coordinator.alert_feed
    alert = await add_alert(cluster, None, kind="browser")
    assert await feed.newest() == 0
    for _ in range(2):
        await cluster.coordinator.alerts.test(alert.id)
        await deliver(cluster)
    follow = feed.follow(0, SYSTEM)
    found = [await anext(follow), await anext(follow)]
    assert [each.sequence for each in found] == [1, 2]
    assert (found[0].title, found[0].alert_name, found[0].path) == ("Test alert", "a", "/alerts")
    await follow.aclose()
    assert await feed.newest() == 2


@pytest.mark.side_by_side
async def test_browsers_get_messages_of_two_alerts_at_once(cluster: SimulatedCluster) -> None:
    four = (add_alert(cluster, None, kind="browser") for _ in range(4))
    alerts = await asyncio.gather(*four)
    await cluster.add_node("alpha")
    await fail_job(cluster)
    await deliver(cluster)
    states = [(await deliveries(cluster, alert.id))[0].state for alert in alerts]
    assert states == ["delivered"] * 4


async def test_deleted_alert_sends_nothing_any_more(cluster: SimulatedCluster) -> None:
    async with receiver() as target:
        alert = await add_alert(cluster, target.url)
        await cluster.coordinator.alerts.test(alert.id)
        await cluster.coordinator.alerts.delete(alert.id)
        await deliver(cluster)
    assert target.received == []
    with pytest.raises(NotFoundError):
        await deliveries(cluster, alert.id)


async def test_old_deliveries_are_deleted(cluster: SimulatedCluster) -> None:
    async with receiver() as target:
        alert = await add_alert(cluster, target.url)
        await cluster.coordinator.alerts.test(alert.id)
        await deliver(cluster)
        cluster.clock.advance(31 * DAY)
        await cluster.coordinator.alerts.test(alert.id)
        await cluster.coordinator.alerts.housekeep()
    async with cluster.db.session() as session:
        assert len((await session.scalars(select(AlertDelivery))).all()) == 1
