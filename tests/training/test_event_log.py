"""Log lines of processes on hosts."""

import logging

import pytest

from trainhall.training.event_log import EventLogger


def test_line_is_an_event_and_quoted_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log = EventLogger("trainhall.test")
        log.info("joined", node="n-1", coordinator="http://hall:1")
        log.warning("gpu_unusable", index=0, error='no "driver"\nfound')
        log.warning("cut", error="\x1b[31m\r")
    assert caplog.messages == [
        "joined node=n-1 coordinator=http://hall:1",
        'gpu_unusable index=0 error="no \\"driver\\"\\nfound"',
        'cut error="\\u001b[31m\\r"',
    ]
