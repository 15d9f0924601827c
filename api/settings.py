"""Settings of the coordinator: flags over environment over `trainhall.toml` over defaults.

The file is the one that TRAINHALL_CONFIG names, else `trainhall.toml` in the current folder, else
`~/.config/trainhall/trainhall.toml`. Its top-level keys and its table `[server]` count here; tables
of other commands are theirs.
"""

import ipaddress
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from trainhall.api.forward.origins import check_beside, domain_name
from trainhall.api.host.config_file import SettingsError, read_file, user_data_dir
from trainhall.api.host.oidc_settings import OidcSettings
from trainhall.api.host.tls import Tls
from trainhall.cluster.access.limits import ProjectLimits
from trainhall.cluster.access.names import new_name
from trainhall.cluster.api_paths import is_base_url
from trainhall.cluster.durations import parse_duration
from trainhall.cluster.options import AlertOptions, ClusterOptions, Prices
from trainhall.cluster.quotas import Quotas
from trainhall.documented import Documented

Duration = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds, or text with a unit: 90s, 10m, 2h."""
_PROJECTS = '{"vision": {"priority": 10, "paths": ["/data/vision"]}}'
ProjectName = Annotated[str, AfterValidator(new_name)]
Price = Annotated[float | None, Field(ge=0, le=10**9)]


class Settings(Documented, BaseSettings):
    """Start-up settings of a coordinator."""

    model_config = SettingsConfigDict(
        env_prefix="TRAINHALL_",
        env_ignore_empty=True,
        extra="ignore",
        populate_by_name=True,
        frozen=True,
        env_nested_delimiter="_",
        env_nested_max_split=1,
    )

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 takes a free one."""
    data_dir: Path = Field(default_factory=user_data_dir)
    """Folder of everything that is kept."""
    database_url: Annotated[
        str | None,
        Field(
            validation_alias=AliasChoices("database_url", "DATABASE_URL", "TRAINHALL_DATABASE_URL")
        ),
    ] = None
    """`postgresql://…`; SQLite in the data folder when it is left out."""
    insecure: bool = False
    """Answer requests on any address, of any Host and Origin: who reaches it may run code."""
    allowed_hosts: Annotated[frozenset[str], NoDecode] = frozenset()
    """More names, besides loopback's, that a request's Host may have; comma-separated."""
    mock: Annotated[
        bool, Field(validation_alias=AliasChoices("mock", "MOCK_DB", "TRAINHALL_MOCK"))
    ] = False
    """Simulate the cluster, for trials and for work on the dashboard: nothing is run, nothing is
    kept, and so every address and Host is answered."""
    auth: Literal["none", "token"] = "token"
    """`token`: every request needs a credential. `none`: whoever reaches the coordinator may do
    everything."""
    mock_auth: bool = False
    """Ask for a credential where the cluster is simulated, too."""
    oidc: OidcSettings | None = None
    """Log users in by an OpenID provider (docs/accounts.md)."""
    public_url: str | None = None
    """URL at which other hosts reach the coordinator, as through a proxy: for the command that adds
    a node, and as a name that a request's Host may have."""
    tls_cert: Path | None = None
    """Certificate to serve TLS with, in PEM, followed by those that vouch for it."""
    tls_key: Path | None = None
    """Key of the certificate, in PEM, without a password."""
    tls_self_signed: bool = False
    """Serve TLS with a certificate that the coordinator makes and renews, in DATA/tls."""
    public_ca: Path | None = None
    """Authority of the certificate that others see, as of a proxy at `public_url`, in PEM, where it
    is not a public one: join tokens carry its fingerprint."""
    trusted_proxies: Annotated[frozenset[str], NoDecode] = frozenset()
    """Addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto count;
    comma-separated. Nobody else's do."""
    connections_per_address: Annotated[int, Field(ge=1, le=10**6)] = 1000
    """Connections of one address at once, and never more than half of the open files that the
    system allows. Of a lab behind one address, 50 agents and their users open about 500."""
    head_seconds: Annotated[Duration, Field(gt=0, le=3600)] = 10.0
    """A request's headers end within so long, or the connection does."""
    body_seconds: Annotated[Duration, Field(gt=0, le=3600)] = 30.0
    """Without a byte of a body for so long, or of a response that is read, the connection ends."""
    viewers_per_user: Annotated[int, Field(ge=1, le=10**6)] = 20
    """Live streams that one user may have open from one address."""
    uploads_per_user: Annotated[int, Field(ge=1, le=10**6)] = 4
    """Uploads of code that one user may have on their way from one address."""
    allow_exec: bool = True
    """Let users run commands, and reach ports, beside the jobs that they may cancel."""
    exec_idle: Annotated[Duration, Field(gt=0, le=10**7)] = 4 * 3600.0
    """A command or a forwarded port through which nothing has passed for so long is ended."""
    exec_per_user: Annotated[int, Field(ge=1, le=10**6)] = 20
    """Commands and forwarded ports that one user may have open from one address."""
    forward_domain: str | None = None
    """Domain below which ports of jobs are pages of their own, `JOB-PORT.DOMAIN`: its names, all of
    them, lead to the coordinator, or to its proxy. `localhost` does without a name server."""
    queued_jobs_per_user: Annotated[int, Field(ge=1, le=10**9)] = 1000
    """Jobs of one user that may wait in the queue."""
    log_bytes_per_job: Annotated[int, Field(ge=1024, le=2**60)] = 1024**3
    """So much of what a job's ranks print is stored."""
    output_file_bytes: Annotated[int, Field(ge=1024, le=2**60)] = 20 * 1024**3
    """The largest output file of a job that is stored."""
    output_bytes_per_job: Annotated[int, Field(ge=1024, le=2**60)] = 100 * 1024**3
    """So much of what a job writes to its folder is stored."""
    suspect_after: Annotated[Duration, Field(gt=0, le=86400)] = 15.0
    """Without a heartbeat for so long, a node gets no new work."""
    lost_after: Annotated[Duration, Field(gt=0, le=86400)] = 90.0
    """Without a heartbeat for so long, a node's attempts are replaced."""
    quotas: Annotated[Quotas, NoDecode] = Field(default_factory=Quotas)
    """Devices that projects and users may hold at once (docs/scheduling.md)."""
    projects: Annotated[dict[ProjectName, ProjectLimits], NoDecode] = Field(default_factory=dict)
    """Limits of projects, which are set, and the projects added, at each start."""
    preemption: bool = True
    """Let jobs of higher priority preempt others: these pause or shrink."""
    priority_ageing: Annotated[Duration, Field(gt=0, le=10**9)] = 24 * 3600.0
    """Waiting so long counts in the queue as one level of priority."""
    grow_after: Annotated[Duration, Field(gt=0, le=10**9)] = 10.0
    """A job that regroups in place keeps its size so long before it takes free devices."""
    grow_by_restart_after: Annotated[Duration, Field(gt=0, le=10**9)] = 600.0
    """Any other elastic job runs so long before it saves and restarts to take them."""
    secrets_key_file: Path | None = None
    """File with the key that secrets of jobs are encrypted with, 32 bytes in base64; `secrets.key`
    in the data folder when it is left out."""
    alerts_private_targets: bool = False
    """Let alerts be sent to loopback, link-local and private addresses, too."""
    smtp_url: str | None = None
    """Mail server of alerts: `smtp://user:password@host:587`, or `smtps://…`."""
    mail_from: str | None = None
    """Sender of the mails of alerts."""
    price_gpu_hour: Price = None
    """Money for an hour of one GPU, in the ledger."""
    price_cpu_hour: Price = None
    """Money for an hour of one CPU slot."""
    price_kwh: Price = None
    """Money for a kilowatt-hour of GPUs whose power is measured."""
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = "EUR"
    """ISO 4217 code of the currency of these prices."""
    audit_days: Annotated[float, Field(gt=0, le=36500)] = 365.0
    """Days for which the rows of the audit log are kept."""
    access_log: bool = False
    """Log every request; without it only those that failed."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Log entries of this level and above; `warning` by default where the cluster is simulated."""

    @field_validator("allowed_hosts", "trusted_proxies", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = value.split(",")
        return frozenset(name.strip().lower() for name in value if name.strip())

    @field_validator("quotas", "projects", mode="before")
    @classmethod
    def _decoded(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError:
            example = '{"users": {"*": 8}}' if info.field_name == "quotas" else _PROJECTS
            raise ValueError(f"must be JSON, such as {example}") from None

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: frozenset[str]) -> frozenset[str]:
        for each in value:
            try:
                ipaddress.ip_network(each)
            except ValueError:
                raise ValueError(
                    f"{each!r} is neither an address nor a network, such as 10.0.0.0/24"
                ) from None
        return value

    @field_validator("public_url")
    @classmethod
    def _reachable(cls, value: str | None) -> str | None:
        if value is not None and not is_base_url(value):
            raise ValueError("must be a URL that agents can reach, such as http://lab:8000")
        return value

    @field_validator("forward_domain")
    @classmethod
    def _is_domain(cls, value: str | None) -> str | None:
        return domain_name(value) if value is not None else None

    @field_validator("smtp_url")
    @classmethod
    def _is_mail_server(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "smtp://-")
        if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
            raise ValueError("must be the URL of a mail server, such as smtp://mail.lab:587")
        return value

    @field_validator("data_dir", "secrets_key_file", "tls_cert", "tls_key", "public_ca")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value is not None else None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _ = self.cluster_options  # checks what holds between several of them
        if self.smtp_url is not None and self.mail_from is None:
            raise ValueError("smtp-url needs mail-from, the sender of the mails")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls-cert and tls-key need each other")
        if self.tls_cert is not None and self.tls_self_signed:
            raise ValueError("tls-self-signed makes a certificate: give it or tls-cert")
        if self.forward_domain is not None:
            check_beside(self.forward_domain, self.own_hosts)
        return self

    @property
    def tls(self) -> Tls:
        """The certificate to serve with."""
        names = {self.host, *self.own_hosts} - {"", "0.0.0.0", "::"}
        return Tls(
            folder=self.data_dir / "tls",
            cert=self.tls_cert,
            key=self.tls_key,
            ca=self.public_ca,
            is_self_signed=self.tls_self_signed,
            names=frozenset(names),
        )

    @property
    def own_hosts(self) -> frozenset[str]:
        """Names that a request's Host may have."""
        public = urlsplit(self.public_url or "").hostname
        return self.allowed_hosts | ({public} if public else set())

    @property
    def cluster_options(self) -> ClusterOptions:
        """Times and limits of the coordinator."""
        return ClusterOptions(
            suspect_after_seconds=self.suspect_after,
            lost_after_seconds=self.lost_after,
            queued_jobs_per_user=self.queued_jobs_per_user,
            log_bytes_per_job=self.log_bytes_per_job,
            output_file_bytes=self.output_file_bytes,
            output_bytes_per_job=self.output_bytes_per_job,
            secrets_key_file=self.secrets_key_file,
            audit_days=self.audit_days,
            exec_allowed=self.allow_exec and not self.mock,
            profiles_allowed=not self.mock,
            exec_idle_seconds=self.exec_idle,
            quotas=self.quotas,
            preemption=self.preemption,
            priority_ageing_seconds=self.priority_ageing,
            grow_after_seconds=self.grow_after,
            grow_by_restart_after_seconds=self.grow_by_restart_after,
            alerts=AlertOptions(
                private_targets=self.alerts_private_targets,
                smtp_url=self.smtp_url,
                mail_from=self.mail_from,
                dashboard_url=self.public_url,
            ),
            prices=Prices(
                currency=self.currency,
                gpu_hour=self.price_gpu_hour,
                cpu_hour=self.price_cpu_hour,
                kwh=self.price_kwh,
            ),
        )

    @property
    def asks_for_login(self) -> bool:
        """True if a request needs a credential."""
        return self.mock_auth if self.mock else self.auth == "token"

    @property
    def logged_level(self) -> str:
        """Entries from this level on are logged: what simulated hosts do is not worth a line."""
        quiet = self.mock and "log_level" not in self.model_fields_set
        return "warning" if quiet else self.log_level

    @property
    def database(self) -> str:
        """URL of the database."""
        return self.database_url or f"sqlite:///{self.data_dir / 'trainhall.db'}"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _file_source(settings_cls)


def _file_source(settings_cls: type[BaseSettings]) -> InitSettingsSource:
    """Return what `trainhall.toml` sets; keys may be written with dashes."""
    values = _read_file()
    return InitSettingsSource(
        settings_cls, {k: v for k, v in values.items() if k in settings_cls.model_fields}
    )


def _read_file() -> dict[str, Any]:
    file = read_file()
    if file is None:
        return {}
    shared = {k: v for k, v in file.values.items() if not isinstance(v, dict)}
    own = file.values.get("server", {})
    if not isinstance(own, dict):
        raise SettingsError(f"{file.path}: server must be a table, [server], not {own!r}")
    return {k.replace("-", "_"): v for k, v in {**shared, **own}.items()}
