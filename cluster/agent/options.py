"""Options of an agent, and the errors that keep it from running."""

import re
import socket
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from trainhall.cluster.api_paths import AGENT_PREFIX, is_base_url

MAX_SLOTS = 4096
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?|\*", re.ASCII)
"""A variable, the beginning of some with `*`, or `*` for all."""


class AgentError(Exception):
    """Unrecoverable error of the agent; the message is one sentence that says what to do."""


class OptionError(AgentError):
    """An option has a value that cannot be used."""


class DataDirInUseError(AgentError):
    """Another agent works in the data folder."""


class MissingCredentialError(AgentError):
    """The node never joined here, and no token was given."""


class JoinRefusedError(AgentError):
    """The coordinator does not accept the token."""


class CredentialRefusedError(AgentError):
    """The coordinator does not know this node."""


class ProtocolMismatchError(AgentError):
    """Agent and coordinator speak different versions of the protocol."""


class UntrustedCoordinatorError(AgentError):
    """Its certificate is not the one that was pinned."""


class RemovedByCoordinatorError(AgentError):
    """The node was removed from the coordinator."""


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    coordinator: str
    """Base URL, for example `http://10.0.0.1:8000`."""
    data_dir: Path
    token: str | None = None
    """Needed once, to join."""
    tls_ca: str | None = None
    """A file, or `sha256:` and a fingerprint, to verify the coordinator with
    (`cluster.tls.find_anchor`); None: what the join token pins, else public authorities."""
    tls_own: Path | None = None
    """File with the certificate of the coordinator itself, on whose host this agent runs. It is
    read again when it was renewed."""
    address: str | None = None
    """Address at which other nodes reach this one; None: the local address that leads to the
    coordinator."""
    slots: int | None = None
    """CPU slots where there is no GPU; None: one per core. Given, they are offered beside GPUs."""
    run_as: str | None = None
    """The user that jobs run as, or a range of user ids, one for each job (`run_as`); None: the
    agent's."""
    job_memory: int | None = None
    """Memory that an attempt may use on this host, in bytes; None: all but what the agent keeps
    for itself and the system."""
    pass_env: tuple[str, ...] = ()
    """Names of variables of the agent's environment that jobs get beside the usual ones
    (`launch.job_environment`)."""
    name: str = field(default_factory=socket.gethostname)
    allows_exec: bool = True
    """Start commands, and open connections, beside jobs for those who may cancel them."""
    allows_file_repositories: bool = False
    """Clone code from git repositories in folders of this host (`file:` addresses), with the rights
    of the user that jobs run as."""
    stop_ranks_on_exit: bool = False
    """End the ranks, too, when asked to end. Otherwise they keep running and the next agent
    finds them."""
    save_seconds: float = 10.0
    """Time that tasks then have to save; slower ones end without."""
    heartbeat_seconds: float = 2.0
    """Until the coordinator says otherwise."""
    reconnect_limit_seconds: float = 2.0
    """The longest wait between two tries to reach the coordinator."""

    def __post_init__(self) -> None:
        if not is_base_url(self.coordinator):
            raise OptionError(
                f"--coordinator {self.coordinator!r} is not a coordinator's address; use one "
                "like http://host:8000"
            )
        for name in self.pass_env:
            if not _ENVIRONMENT_NAME.fullmatch(name):
                raise OptionError(
                    f"--pass-env {name!r} names no environment variable; use one like AWS_REGION, "
                    "or AWS_* for all that begin so"
                )
        if self.slots is not None and not 0 <= self.slots <= MAX_SLOTS:
            raise OptionError(f"--slots {self.slots} must lie between 0 and {MAX_SLOTS}")

    @property
    def url(self) -> str:
        """URL of the coordinator's agent interface over HTTP."""
        return self.coordinator.rstrip("/") + AGENT_PREFIX

    @property
    def websocket_url(self) -> str:
        return "ws" + self.url.removeprefix("http") + "/connect"

    @property
    def shipping_url(self) -> str:
        """Return the URL that small items from ranks are sent to (`cluster.wire.batches`)."""
        return "ws" + self.url.removeprefix("http") + "/ship"

    def tunnel_url(self, ticket: str) -> str:
        """Return the URL of a tunnel (`cluster.wire.tunnel`)."""
        return "ws" + self.url.removeprefix("http") + f"/tunnels/{ticket}"

    def own_address(self) -> str:
        """Return the address at which other nodes reach this one."""
        if self.address:
            return self.address
        url = urlsplit(self.coordinator)
        try:
            # Connecting a datagram socket sends nothing; it only asks the kernel for the route.
            family, _, _, _, target = socket.getaddrinfo(
                url.hostname, url.port or 80, type=socket.SOCK_DGRAM
            )[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(target)
                return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
