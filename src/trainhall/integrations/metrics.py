"""Metrics on their way from a library to the SDK: what cannot be one stops no training."""

from collections.abc import Mapping
from functools import cache
from numbers import Real
from typing import Any

from trainhall.training.event_log import EventLogger
from trainhall.training.sdk import api

log = EventLogger(__name__)


def report(values: Mapping[str, Any], step: int) -> None:
    """Report the numbers among some values; a refused one is left out, and a line says so once."""
    for name, value in values.items():
        if isinstance(value, Real):
            try:
                api.report({name: value}, step=step)
            except (TypeError, ValueError) as error:
                _warn(str(error))


@cache
def _warn(reason: str) -> None:
    log.warning("metric_left_out", reason=reason)
