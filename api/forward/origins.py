"""Names under which ports of jobs are served."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

_LABEL = re.compile(r"(?P<job>[0-9a-z]{1,32})-(?P<port>[1-9][0-9]{0,4})")
_DOMAIN = re.compile(
    r"(?=.{1,200}$)[0-9a-z]([0-9a-z-]*[0-9a-z])?(\.[0-9a-z]([0-9a-z-]*[0-9a-z])?)*"
)
MAX_PORT = 65535
LOCALHOST = "localhost"


@dataclass(frozen=True)
class JobPort:
    """A port beside the first rank of a job."""

    job_id: str
    port: int


@dataclass(frozen=True)
class ForwardDomain:
    """The domain below which each port of a job has a name."""

    name: str

    def parse(self, host: str) -> JobPort | None:
        """Return the port that the name of a host, in lower case, is that of; None: it is none."""
        label, dot, domain = host.partition(".")
        found = _LABEL.fullmatch(label)
        if not dot or domain != self.name or found is None or int(found["port"]) > MAX_PORT:
            return None
        return JobPort(found["job"], int(found["port"]))

    def origin(self, place: JobPort, base: str) -> str:
        """Return the origin of a port, as who reaches the coordinator at `base` reaches it."""
        parts = urlsplit(base)
        port = f":{parts.port}" if parts.port is not None else ""
        return f"{parts.scheme}://{place.job_id}-{place.port}.{self.name}{port}"


def domain_name(text: str) -> str:
    """Return a domain in lower case.

    Raises:
        ValueError: it is none.
    """
    name = text.strip().lower().removeprefix("*.")
    if not _DOMAIN.fullmatch(name) or name.rpartition(".")[2].isdigit():
        raise ValueError(f"{text!r} is not a domain, such as fwd.example.org")
    return name


def check_beside(domain: str, own_hosts: frozenset[str]) -> None:
    """Check that pages below a domain cannot set cookies for the coordinator.

    Raises:
        ValueError: it lies below one of the coordinator's names, or the other way round.
    """
    for host in sorted(own_hosts):
        if f".{host}".endswith(f".{domain}") or f".{domain}".endswith(f".{host}"):
            raise ValueError(
                f"forward-domain {domain!r} and the coordinator's name {host!r} lie one below the "
                "other, where pages of jobs could set its cookies: use a domain beside it, such as "
                "fwd.example.org for hall.example.org"
            )
