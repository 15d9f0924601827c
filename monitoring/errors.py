"""What of monitoring is refused.

IngestError
├── UnknownAttempt    no such job or attempt
├── DamagedFrame      bytes that are no metric frame
├── BadCursor         a cursor of the log that is not one
└── NoSuchLine        a line of the log that is not stored
"""


class IngestError(Exception):
    """Monitoring data could not be taken or read."""


class UnknownAttempt(IngestError):
    """No such attempt."""

    def __init__(self, job_id: str, attempt: int) -> None:
        self.job_id = job_id
        self.attempt = attempt
        super().__init__(f"job {job_id!r} has no attempt {attempt}")


class DamagedFrame(IngestError):
    """Bytes that are no metric frame."""


class BadCursor(IngestError):
    """A cursor that no page of a log gave."""

    def __init__(self, field: str, text: str) -> None:
        self.field = field
        super().__init__(f"{text!r} is no cursor of a log; use next_cursor of a page")


class NoSuchLine(IngestError):
    """There is no such line."""
