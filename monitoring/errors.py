"""Errors of monitoring.

IngestError
├── UnknownAttemptError    no such job or attempt
├── DamagedFrameError      bytes that are no metric frame
├── InvalidLogCursorError  a cursor of the log that is not one
└── LineNotFoundError      a line of the log that is not stored
"""


class IngestError(Exception):
    """Monitoring data could not be taken or read."""


class UnknownAttemptError(IngestError):
    """No such attempt."""

    def __init__(self, job_id: str, attempt: int) -> None:
        self.job_id = job_id
        self.attempt = attempt
        super().__init__(f"job {job_id!r} has no attempt {attempt}")


class DamagedFrameError(IngestError):
    """Bytes that are no metric frame."""


class InvalidLogCursorError(IngestError):
    """A cursor that no page of a log gave."""

    def __init__(self, field: str, text: str) -> None:
        self.field = field
        super().__init__(f"{text!r} is not a log cursor; use next_cursor of a page")


class LineNotFoundError(IngestError):
    """The line is not stored."""
