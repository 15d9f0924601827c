"""A thin client of the REST API: paths in, JSON out, problem details as exceptions."""

import contextlib
import io
import math
import os
import ssl
import time
import uuid
from collections.abc import Iterator
from typing import Any, Self

import httpx

from trainhall.api.host.login_name import login_name
from trainhall.cli.base.credentials import token_for, token_of_own_coordinator
from trainhall.cli.base.errors import (
    CliError,
    NotAllowedError,
    NotFoundError,
    UnreachableError,
    UsageError,
    WrongStateError,
)
from trainhall.cli.base.trust import anchor_of
from trainhall.cluster.api_paths import API_PREFIX, is_base_url
from trainhall.cluster.backoff import Backoff
from trainhall.cluster.tls import Anchor, describe_refusal, is_https, tls_context

# Repeating one of these changes nothing more than sending it once did.
IDEMPOTENT = frozenset({"GET", "HEAD"})
# Its database does not answer, or a proxy does not reach it: in a moment it may.
AWAY = frozenset({502, 503, 504})
ATTEMPTS = 4
FIRST_PAUSE = 0.1
LONGEST_RETRY = 10.0
"""Seconds that a refused request waits for a place by itself; else the user decides."""
LEAST_SECONDS = 1.0
"""For an answer, however close the deadline of a request is."""
PAGE = 200
PROJECT_VARIABLE = "TRAINHALL_PROJECT"
"""Environment variable with the project of what names none."""
LOGINS = tuple(f"{API_PREFIX}/auth/{way}" for way in ("link", "device", "browser"))
"""Paths that make a credential of something else, which may be wrong."""
ARCHIVED_TOO = "archived:yes,no"
"""Query of all jobs."""


class Client:
    """Talks to one coordinator; close it, or use it in a `with`.

    Args:
        token: API token; None: the one that this user has for the URL.

    Raises:
        UnreachableError: nothing answers, or it cannot serve now, after a few tries where a retry
            is harmless.
        NotFoundError, WrongStateError, NotAllowedError, UsageError, CliError: by the answer's
            status.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 30.0,
        attempts: int = ATTEMPTS,
        token: str | None = None,
        anchor: Anchor | None = None,
    ) -> None:
        """Prepare the connections.

        Args:
            anchor: what its certificate is verified with; None: see `trust.anchor_of`.
        """
        if not is_base_url(url):
            raise UsageError(f"the URL {url!r} is not an address; use one like http://lab:8000")
        self.url = url.rstrip("/")
        self._attempts = attempts
        self._timeout = timeout
        self._anchor = anchor or anchor_of(url)
        # A coordinator on loopback or in the lab's network is not behind a web proxy.
        try:
            self._http = httpx.Client(
                base_url=self.url,
                timeout=timeout,
                trust_env=False,
                verify=tls_context(url, self._anchor),
            )
        except httpx.InvalidURL as error:
            raise self._no_address(error) from None
        self._has_token = self._use_token(token_for(self.url) if token is None else token)

    def _use_token(self, token: str | None) -> bool:
        if token:
            self._http.headers["Authorization"] = f"Bearer {token}"
        return bool(token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    @property
    def _patient(self) -> httpx.Timeout:
        """For an answer that takes as long as its computation."""
        return httpx.Timeout(self._timeout, read=None)

    def page_of(self, job_id: str) -> str:
        """Return the address of a job in the dashboard."""
        return f"{self.url}/jobs/{job_id}"

    def report_page(self, report_id: str) -> str:
        """Return the address of a report in the dashboard."""
        return f"{self.url}/reports/{report_id}"

    def request(self, method: str, path: str, *, deadline: float = math.inf, **options: Any) -> Any:
        """Send one request below /api/v1 and return the JSON of the answer (None when empty).

        Args:
            deadline: when to stop trying, by `time.monotonic`, though not before the first try
                has had a second.
        """
        repeatable = method in IDEMPOTENT or "Idempotency-Key" in (options.get("headers") or {})
        response = self._send(method, API_PREFIX + path, repeatable, options, deadline)
        if response.is_success:
            return self._document(response) if response.content else None
        raise problem_of(response)

    def send_raw(self, method: str, path: str, **options: Any) -> Any:
        """Send a request that may be repeated to a path of the coordinator that is not below
        /api/v1, and return the JSON of the answer."""
        response = self._send(method, path, "content" not in options, options)
        if response.is_success:
            return self._document(response)
        raise problem_of(response)

    def _request(self, method: str, path: str, options: dict[str, Any]) -> httpx.Response:
        content = options.get("content")
        if isinstance(content, io.IOBase):
            content.seek(0)  # an earlier try has read it
        return self._http.request(method, path, **options)

    def _send(
        self,
        method: str,
        path: str,
        repeatable: bool,
        options: dict[str, Any],
        deadline: float = math.inf,
    ) -> httpx.Response:
        backoff = Backoff(FIRST_PAUSE)
        for attempt in range(1, self._attempts + 1):
            left = deadline - time.monotonic()
            if left < self._timeout:
                options = {**options, "timeout": max(left, LEAST_SECONDS)}
            is_last = attempt == self._attempts or left <= LEAST_SECONDS
            try:
                response = self._request(method, path, options)
                if response.status_code == 401 and self._finds_token():
                    response = self._request(method, path, options)
                if response.status_code == 401 and not path.startswith(LOGINS):
                    self._check_logged_in()
                if (pause := _retry_after(response)) and not is_last:
                    time.sleep(min(pause, left))
                    continue
                if not (repeatable and response.status_code in AWAY):
                    return response
                if is_last:
                    problem = problem_of(response)
                    raise UnreachableError(problem.message, problem.details)
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
                raise self._no_address(error) from None
            except httpx.TransportError as error:
                # A connection that was never made carried no request, so any may be repeated.
                unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                is_refused = describe_refusal(error, self.url) is not None
                if is_last or is_refused or not (repeatable or unsent):
                    raise self._unreachable(error) from None
            time.sleep(backoff.next())
        raise AssertionError("the last attempt returns or raises")

    def _finds_token(self) -> bool:
        """Look, once, for the token of a coordinator that this user runs; whether there is one."""
        if self._has_token:
            return False
        self._has_token = True
        return self._use_token(token_of_own_coordinator(self.url))

    def _check_logged_in(self) -> None:
        if "Authorization" not in self._http.headers:
            advice = f"run `trainhall login {self.url}`"
            raise NotAllowedError(f"you are not logged in to {self.url}: {advice}")

    def _no_address(self, error: Exception) -> UsageError:
        return UsageError(f"the URL {self.url!r} is not an address: {error}")

    def _document(self, response: httpx.Response) -> dict[str, Any]:
        payload = self._json(response)
        if not isinstance(payload, dict):
            raise self._no_coordinator("not a JSON object")
        return payload

    def _json(self, response: httpx.Response) -> Any:
        try:
            return response.json()
        except ValueError:
            raise self._no_coordinator("not JSON") from None

    def _no_coordinator(self, answer: str) -> CliError:
        return CliError(f"{self.url} is not a Trainhall coordinator: its answer is {answer}")

    def _unreachable(self, error: httpx.TransportError) -> UnreachableError:
        if isinstance(error, httpx.ReadTimeout):
            return UnreachableError(f"the coordinator at {self.url} did not answer in time")
        if refusal := describe_refusal(error, self.url, self._anchor):
            return UnreachableError(refusal)
        why = str(error) or type(error).__name__
        return UnreachableError(
            f"no coordinator answers at {self.url} ({why}). Start one with `trainhall up`, or "
            "give its URL with --url or TRAINHALL_URL."
        )

    def stream(self, path: str, *, start: int = 0, **params: Any) -> Iterator[bytes]:
        """Yield the bytes of an answer, as they come.

        Args:
            start: of a route that serves ranges, the number of bytes to leave out.
        """
        if not self._has_token:
            self.get("/auth/me")  # finds one, if one is needed
        # Bytes as they are stored, which the range counts.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        given = {name: value for name, value in params.items() if value is not None}
        try:
            with self._http.stream(
                "GET", API_PREFIX + path, params=given, headers=headers
            ) as response:
                if not response.is_success:
                    response.read()
                    raise problem_of(response)
                left_out = 0 if response.status_code == 206 else start
                for piece in response.iter_bytes():
                    yield piece[left_out:]
                    left_out = max(0, left_out - len(piece))
        except httpx.TransportError as error:
            raise self._unreachable(error) from None

    def websocket(self, path: str) -> tuple[str, dict[str, str], ssl.SSLContext | None]:
        """Return the URL of a websocket below /api/v1, and the headers and the TLS to open it
        with."""
        if not self._has_token:
            self.get("/auth/me")  # finds one, if one is needed
        token = self._http.headers.get("Authorization")
        return (
            "ws" + self.url.removeprefix("http") + API_PREFIX + path,
            {} if token is None else {"Authorization": token},
            tls_context(self.url, self._anchor) if is_https(self.url) else None,
        )

    def get(self, path: str, **params: Any) -> Any:
        return self.request("GET", path, params={k: v for k, v in params.items() if v is not None})

    def items(self, path: str, *, limit: int | None = None, **params: Any) -> Iterator[Any]:
        """Yield every item of a paged list, or the first `limit` of them."""
        for page in self.pages(path, limit=limit, **params):
            yield from page["items"]

    def pages(self, path: str, *, limit: int | None = None, **params: Any) -> Iterator[Any]:
        """Yield the pages of a list, up to `limit` items together."""
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            page = self.get(path, limit=size, cursor=cursor, **params)
            if not isinstance(page, dict) or "items" not in page:
                raise self._no_coordinator("not a list")
            if left is not None:
                page["items"] = page["items"][:left]
                left -= len(page["items"])
            yield page
            cursor = page.get("next_cursor")
            if not cursor:
                return

    def is_simulated(self) -> bool:
        """Return whether the cluster is simulated (mock mode)."""
        reply = self._send("GET", "/healthz", True, {})
        payload = self._json(reply) if reply.is_success else None
        return isinstance(payload, dict) and payload.get("simulated") is True

    def submit(
        self, spec: dict[str, Any], *, dry_run: bool = False, deadline: float = math.inf
    ) -> Any:
        """Submit a job once, however often the connection breaks.

        Args:
            deadline: of a dry run, as that of `request`.
        """
        if dry_run:
            asked = {"dry_run": "true"}
            return self.request(
                "POST", "/training/jobs", json=self._owned(spec), params=asked, deadline=deadline
            )
        return self._create("/training/jobs", self._owned(spec))

    def _owned(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Return a job spec with the project of `TRAINHALL_PROJECT`, if it names none itself.

        Where no credential says who submits it, the user of this process is its owner.
        """
        own = {
            "project": os.environ.get(PROJECT_VARIABLE) or None,
            "user": None if self._has_token else login_name(),
        }
        given = {key: value for key, value in own.items() if value is not None}
        return {**spec, **{key: spec.get(key) or value for key, value in given.items()}}

    def create_experiment(self, experiment: dict[str, Any], *, dry_run: bool = False) -> Any:
        """Create an experiment once, however often the connection breaks."""
        if "job" in experiment:  # without one it is refused with the reason
            experiment = {**experiment, "job": self._owned(experiment["job"])}
        if dry_run:
            asked = {"dry_run": "true"}
            return self.request("POST", "/experiments", json=experiment, params=asked)
        return self._create("/experiments", experiment)

    def _create(self, path: str, document: dict[str, Any]) -> Any:
        key = {"Idempotency-Key": str(uuid.uuid4())}
        return self.request("POST", path, json=document, headers=key)

    def verify(self, checkpoint_id: str) -> Any:
        """Ask the coordinator to hash a checkpoint, however long that takes: it may be large."""
        return self.request(
            "POST", f"/checkpoints/{segment(checkpoint_id)}/verify", timeout=self._patient
        )

    def analyze_experiment(self, experiment_id: str) -> Any:
        """Return the analysis of an experiment, however long that takes."""
        path = f"/experiments/{segment(experiment_id)}/analyze"
        return self.request("POST", path, timeout=self._patient)

    def experiment_report(self, experiment_id: str, form: str) -> str:
        """Return a report of an experiment in one of its formats, as text."""
        return self.text(f"/experiments/{segment(experiment_id)}/report", format=form)

    def text(self, path: str, **params: Any) -> str:
        """Return what is no JSON, however long it takes to make."""
        options = {"params": params, "timeout": self._patient}
        response = self._send("GET", API_PREFIX + path, True, options)
        if not response.is_success:
            raise problem_of(response)
        return response.text

    def what_if(self, question: dict[str, Any]) -> Any:
        """Replay the recorded queue on another cluster, however long that takes."""
        return self.request("POST", "/cluster/what-if", json=question, timeout=self._patient)

    def upload_code(self, sha256: str, archive: bytes, project: str | None = None) -> bool:
        """Upload code for a project; return False if one of the user's projects had it already."""
        path = f"/training/code/{sha256}"
        try:
            self.get(path)
            return False
        except NotFoundError:
            pass
        options = {
            "content": archive,
            "headers": {"Content-Type": "application/octet-stream"},
            "params": {"project": project} if project is not None else {},
        }
        response = self._send("PUT", API_PREFIX + path, True, options)
        if not response.is_success:
            raise problem_of(response)
        return True

    def job(self, reference: str, deadline: float = math.inf) -> Any:
        """Return a job by its name, if no other has it, or any unique prefix of its id.

        Args:
            deadline: that of `request`.
        """
        asked = {"search": reference, "query": ARCHIVED_TOO}
        found = self._find("/training/jobs", reference, deadline, **asked)
        if not found and self._exists("/experiments", reference):
            raise NotFoundError(
                f"{reference} is an experiment, not a job; see `trainhall experiment show "
                f"{reference}`"
            )
        return only(found, "job", reference)

    def job_id(self, reference: str, deadline: float = math.inf) -> str:
        return str(self.job(reference, deadline)["id"])

    def experiment(self, reference: str, deadline: float = math.inf) -> Any:
        """Return an experiment by its name, if no other has it, or any unique prefix of its id.

        Args:
            deadline: that of `request`.
        """
        found = self._find("/experiments", reference, deadline)
        asked = {"search": reference, "query": ARCHIVED_TOO}
        if not found and self._exists("/training/jobs", reference, **asked):
            raise NotFoundError(
                f"{reference} is a job, not an experiment; see `trainhall show {reference}`"
            )
        return only(found, "experiment", reference)

    def _find(self, path: str, reference: str, deadline: float, **asked: Any) -> list[Any]:
        """Return what has this id, else all of this name, else all whose ids begin like this."""
        if not reference:
            raise UsageError("a name or an id is required, not an empty text")
        if _is_id(reference):
            # UsageError: of another route, as /training/jobs/groups.
            with contextlib.suppress(NotFoundError, UsageError):
                return [self.request("GET", f"{path}/{reference}", deadline=deadline)]
        items = list(self.items(path, **asked))
        named = [item for item in items if item["name"] == reference]
        return named or [item for item in items if item["id"].startswith(reference)]

    def _exists(self, path: str, reference: str, **asked: Any) -> bool:
        """Return whether a list has something whose id begins like this."""
        try:
            return any(item["id"].startswith(reference) for item in self.items(path, **asked))
        except NotFoundError:  # an older coordinator may not have the list
            return False

    def node(self, reference: str) -> Any:
        """Return a node by its name or any unique prefix of its id."""
        nodes = list(self.items("/cluster/nodes"))
        exact = [n for n in nodes if reference in (n["id"], n["name"])]
        found = exact or [n for n in nodes if n["id"].startswith(reference)]
        return only(found, "node", reference)

    def alert(self, reference: str) -> Any:
        """Return an alert by its name or any unique prefix of its id."""
        alerts = list(self.items("/alerts"))
        exact = [a for a in alerts if reference in (a["id"], a["name"])]
        found = exact or [a for a in alerts if a["id"].startswith(reference)]
        return only(found, "alert", reference)

    def token(self, reference: str, user: str | None = None) -> Any:
        """Return an API token by its name or any unique prefix of its id.

        Args:
            user: whose; None: the caller's.
        """
        tokens = list(self.items("/auth/tokens", user=user))
        exact = [t for t in tokens if reference in (t["id"], t["name"])]
        found = exact or [t for t in tokens if t["id"].startswith(reference)]
        return only(found, "token", reference)

    def report(self, reference: str) -> Any:
        """Return a report by its title or any unique prefix of its id."""
        reports = list(self.items("/reports"))
        exact = [r for r in reports if reference in (r["id"], r["title"])]
        found = exact or [r for r in reports if r["id"].startswith(reference)]
        return self.get(f"/reports/{only(found, 'report', reference)['id']}")

    def checkpoint(self, reference: str) -> Any:
        """Return a checkpoint by any unique prefix of its id."""
        try:
            return self.get(f"/checkpoints/{segment(reference)}")
        except NotFoundError:
            jobs = list(self.items("/training/jobs", query=ARCHIVED_TOO))
            for job in jobs:
                if job["id"] == reference:
                    raise UsageError(
                        f"{reference} is a job; `trainhall ckpt ls {reference}` lists its "
                        "checkpoints"
                    ) from None
            found = [
                checkpoint
                for job in jobs
                for checkpoint in self.items(f"/checkpoints/jobs/{job['id']}")
                if checkpoint["id"].startswith(reference)
            ]
        return only(found, "checkpoint", reference)


def only(found: list[Any], what: str, reference: str) -> Any:
    """Return the one thing that a reference means.

    Raises:
        NotFoundError, UsageError: it means nothing, or several things.
    """
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFoundError(f"there is no {what} {reference!r}")
    ids = ", ".join(sorted(item["id"] for item in found)[:8])
    if found[0].get("name") == reference:
        raise UsageError(f"{reference!r} is the name of {len(found)} {what}s: {ids}; give an id")
    raise UsageError(
        f"{reference!r} is the prefix of {len(found)} {what} ids: {ids}; give more characters"
    )


def segment(text: str) -> str:
    """Quote text as one segment of a path: it can't climb out of it.

    Raises:
        UsageError: no id looks like that.
    """
    if not _is_id(text):
        raise UsageError(f"{text!r} is not an id: ids consist of letters, digits, - and _")
    return text


def _is_id(text: str) -> bool:
    return text != "" and all(c.isalnum() or c in "-_" for c in text)


def _retry_after(response: httpx.Response) -> float | None:
    """Return the seconds after which a request that did nothing, as too many are under way, may be
    repeated; None: it was answered, or that is too long to wait."""
    if response.status_code != 429:
        return None
    try:
        seconds = float(response.headers.get("Retry-After", ""))
    except ValueError:
        return None
    return seconds if 0 < seconds <= LONGEST_RETRY else None


def problem_of(response: httpx.Response) -> CliError:
    """Convert RFC 9457 problem details to the exception that fits the status."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        body = {"detail": response.text.strip()[:200]}
    message = _printable(str(body.get("detail") or body.get("title") or response.reason_phrase))
    details = [line for line in map(_field_line, body.get("errors") or []) if line]
    if len(details) == 1 and details[0].startswith(message):
        # The only wrong field is the message: said once, with the value.
        message, details = details[0], []
    status = response.status_code
    kinds: dict[int, type[CliError]] = {
        400: UsageError,
        401: NotAllowedError,
        403: NotAllowedError,
        404: NotFoundError,
        409: WrongStateError,
        413: UsageError,
        415: UsageError,
        422: UsageError,
        **dict.fromkeys(AWAY, UnreachableError),
    }
    kind = kinds.get(status, CliError)
    if kind in (CliError, UnreachableError):
        message = f"the coordinator answered {status}: {message}"
    return kind(message, details)


def _field_line(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    field, message = error.get("field"), error.get("message") or error.get("detail") or ""
    value = error.get("value")
    suffix = f" (given: {_printable(str(value))})" if value not in (None, "") else ""
    return f"{field}: {message}{suffix}" if field else f"{message}{suffix}"


def _printable(text: str) -> str:
    """Escape what would change how text is shown, but breaks of lines."""
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode()
        for each in text
    )
