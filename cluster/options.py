"""The coordinator's times and limits."""

from dataclasses import dataclass, field, fields
from pathlib import Path

from trainhall.cluster.quotas import Quotas


@dataclass(frozen=True, kw_only=True)
class AlertOptions:
    """Settings of the messages of alerts."""

    private_targets: bool = False
    """Send to loopback, link-local and private addresses, too."""
    smtp_url: str | None = None
    """`smtp://user:password@host:587` or `smtps://…`; None: no mail is sent."""
    mail_from: str | None = None
    """Sender of mails."""
    dashboard_url: str | None = None
    """Beginning of links to the dashboard; None: messages have no links."""
    simulated: bool = False
    """Send nothing, and say so in the deliveries."""
    poll_seconds: float = 1.0
    """Interval between looks for messages that are due, as long as there are alerts."""
    check_seconds: float = 15.0
    """Interval between checks of what lasts: waiting jobs, full disks, quotas."""


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices of the ledger; without any it shows no money."""

    currency: str = "EUR"
    gpu_hour: float | None = None
    """Price of one GPU for an hour."""
    cpu_hour: float | None = None
    """Price of one CPU slot for an hour."""
    kwh: float | None = None
    """Price of a kilowatt-hour, where power is measured."""


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    heartbeat_seconds: float = 2.0
    """Interval between an agent's reports when nothing changes."""
    suspect_after_seconds: float = 15.0
    """Time without a heartbeat after which a node gets no new work."""
    lost_after_seconds: float = 90.0
    """Time without a heartbeat after which a node's attempts are revoked and replaced."""
    hello_seconds: float = 10.0
    """Time for a new connection to send its first report."""
    tick_seconds: float = 1.0
    """Interval of the slow tick: everything is decided again even without an event."""
    telemetry_seconds: float = 1.0
    """Device and host readings of all nodes are stored together this often."""
    join_token_seconds: float = 24 * 3600.0
    """Life of a join token that is not used."""
    credential_cache_seconds: float = 60.0
    """Time that a credential is trusted without another look-up."""
    start_limit_seconds: float = 1800.0
    """Time for an attempt until all its ranks run and, of a task, train. Fetching and verifying
    a large checkpoint is part of it."""
    shipping_patience_seconds: float = 30.0
    """Time that the end of a failed attempt waits for its ranks' last uploads."""
    restart_backoff_seconds: float = 1.0
    """Wait before the second restart in a row (the first does not wait); it doubles each time."""
    restart_backoff_limit_seconds: float = 30.0
    """The longest such wait."""
    priority_ageing_seconds: float = 24 * 3600.0
    """So much waiting counts in the queue as one level of priority."""
    preemption: bool = True
    """Jobs of higher priority may preempt others: these pause or shrink."""
    quotas: Quotas = field(default_factory=Quotas)
    """Devices that projects and users may hold at once."""
    grow_after_seconds: float = 10.0
    """Time for which a job that regroups in place ignores devices that became free."""
    grow_by_restart_after_seconds: float = 600.0
    """Time that any other elastic job runs, before it saves and restarts to take them."""
    max_upload_file_bytes: int = 256 * 1024**3
    """The largest file of an uploaded checkpoint."""
    abandoned_upload_seconds: float = 24 * 3600.0
    """An upload that was not continued for so long is removed."""
    unused_code_seconds: float = 3600.0
    """Uploaded code that no job names is removed after so long."""
    unused_code_bytes: int = 8 * 1024**3
    """So much of it is kept at once, with what has come of archives that are on their way."""
    queued_jobs_per_user: int = 1000
    """Jobs of one user that may wait in the queue; of those without a user together."""
    log_bytes_per_job: int = 1024**3
    """So much of what a job's ranks print is stored."""
    output_file_bytes: int = 20 * 1024**3
    """The largest output file that is stored."""
    output_bytes_per_job: int = 100 * 1024**3
    """So much of what a job writes is stored, unless its spec sets less."""
    secrets_key_file: Path | None = None
    """File with the key of stored secrets; None: `secrets.key` in the data folder."""
    audit_days: float = 365.0
    """Rows of the audit log are kept for so many days."""
    exec_allowed: bool = True
    """Users may begin sessions beside the ranks of jobs that they may cancel."""
    profiles_allowed: bool = True
    """The ranks of jobs are processes, whose steps can be profiled."""
    exec_idle_seconds: float = 4 * 3600.0
    """A session through which nothing has passed for so long is ended."""
    housekeeping_seconds: float = 30.0
    """Interval between removals of deleted files."""
    queue_history_seconds: float = 10.0
    """Interval between samples of the positions in the queue."""
    packing_seconds: float = 2.0
    """Interval between packings of raw metrics."""
    resume_candidates: int = 8
    """Number of checkpoints that an attempt may try, best first."""
    alerts: AlertOptions = field(default_factory=AlertOptions)
    prices: Prices = field(default_factory=Prices)

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, int | float) and not isinstance(value, bool) and not value > 0:
                raise ValueError(f"{item.name} must be above 0, not {value!r}")
        if not self.heartbeat_seconds < self.suspect_after_seconds < self.lost_after_seconds:
            raise ValueError(
                f"suspect_after must lie above {self.heartbeat_seconds:g} and below lost_after, "
                f"and is {self.suspect_after_seconds:g} where lost_after is "
                f"{self.lost_after_seconds:g}"
            )
