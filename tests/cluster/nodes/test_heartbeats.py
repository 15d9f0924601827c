"""Whom the coordinator takes for silent."""

from support.nodes.clock import SimulatedClock

from trainhall.cluster.nodes.heartbeats import HeartbeatMonitor


def test_heartbeats_ignore_time_the_coordinator_slept() -> None:
    clock = SimulatedClock()
    heartbeats = HeartbeatMonitor(clock)
    heartbeats.start(stall_threshold_seconds=6)
    heartbeats.record("alpha")
    clock.advance(500)
    assert heartbeats.seconds_since("alpha") == 0, "asked right after the sleep, before a tick"
    assert heartbeats.listening_seconds == 0
    for _ in range(45):
        clock.advance(2)
        silent = heartbeats.seconds_since("alpha")
    assert silent == 90, "a node that stays silent is silent"
    clock.advance(500)
    heartbeats.record("beta")
    assert heartbeats.seconds_since("alpha") == 0, "nor if another node reports first"


def test_silence_from_before_the_start_does_not_count() -> None:
    clock = SimulatedClock()
    heartbeats = HeartbeatMonitor(clock)
    clock.advance(100)
    heartbeats.start(stall_threshold_seconds=6)
    assert heartbeats.seconds_since("alpha") == 0
