"""Views of the ledger, as the REST API returns them."""

from enum import StrEnum

from trainhall.db.views import Time, View


class Account(StrEnum):
    """Kind of the lines of a ledger."""

    JOB = "job"
    USER = "user"
    PROJECT = "project"


class LedgerSums(View):
    """Sums over attempts. The parts of `device_hours` are null where none of it is measured."""

    jobs: int
    device_hours: float
    """Devices times the hours for which attempts held them, CPU slots included."""
    gpu_hours: float
    """Device-hours of GPUs."""
    useful_hours: float | None
    """Device-hours in steps that count, less the waiting for data."""
    data_hours: float | None
    """Device-hours of steps that count, in which ranks waited for data."""
    redone_hours: float | None
    """Device-hours of steps that were taken again later."""
    idle_hours: float | None
    """Device-hours outside steps: start-up, regrouping, evaluation, saving, and the end."""
    not_measured_hours: float
    """Device-hours of scripts that do not report every step's time, and the newest of attempts that
    run."""
    energy_kwh: float | None
    """Energy of the GPUs in `metered_hours`; null if that is 0."""
    metered_hours: float
    """Device-hours whose power was measured."""
    cost: float | None
    """Money by the coordinator's prices; null without a price."""


class LedgerRow(LedgerSums):
    """Line of the ledger."""

    name: str | None
    """Name of the job, user or project; null: jobs without one."""
    job_id: str | None
    """Null unless the line is a job's, as are the next two. The job may have been deleted."""
    user: str | None
    project: str | None


class Ledger(View):
    """One page of the ledger, most device-hours first."""

    by: Account
    since: Time
    until: Time | None
    """Null: up to now."""
    currency: str | None
    """ISO 4217 code; null without a price."""
    items: list[LedgerRow]
    next_cursor: str | None
    """Hand it back as `cursor` for the next page; null on the last one."""
    total: LedgerSums
    """Sums over all pages."""
