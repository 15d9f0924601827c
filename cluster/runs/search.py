"""Search of runs by MLflow's filters: `metrics.loss < 0.5 and params.lr = '0.1'`."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.visibility import visible
from trainhall.cluster.errors import InvalidValueError
from trainhall.cluster.lifecycle.states import JobKind
from trainhall.cluster.runs.groups import DEFAULT_ID
from trainhall.cluster.runs.states import milliseconds, status_of
from trainhall.cluster.wire.mlflow import NAME_TAG
from trainhall.db.models import Job, JobProgress
from trainhall.db.tracking.runs import Run

MAX_RESULTS = 50_000
"""As in MLflow."""
MAX_SEARCHED = 10_000
"""Runs of the asked groups that are searched."""
MAX_FILTER = 10_000
"""Characters of a filter."""
MAX_PARTS = 50
"""Clauses of a filter, and keys of an order: each is computed for every run."""

_KINDS = {
    "metric": "metric", "metrics": "metric",
    "param": "param", "params": "param", "parameter": "param", "parameters": "param",
    "tag": "tag", "tags": "tag",
    "attribute": "attribute", "attributes": "attribute", "attr": "attribute", "run": "attribute",
}  # fmt: skip
_TEXTS = ("run_id", "run_name", "status", "user_id")
_NUMBERS = ("start_time", "end_time")
_ALIASES = {"run name": "run_name", "run id": "run_id", "Created": "start_time",
            "created": "start_time"}  # fmt: skip
_NAME = r'[\w.]+\.(?:`[^`]+`|"[^"]+")|`[^`]+`|"[^"]+"|[\w./@-]+'
_LITERAL = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[-+]?[\w.+-]+"""
_CLAUSE = re.compile(
    rf"""\s*(?P<key>{_NAME})\s*
    (?:(?P<null>IS\s+(?:NOT\s+)?NULL)
      |(?P<op><=|>=|!=|=|<|>|LIKE\b|ILIKE\b)\s*(?P<value>{_LITERAL})
      |(?P<in>(?:NOT\s+)?IN)\s*\(\s*(?P<values>(?:{_LITERAL})(?:\s*,\s*(?:{_LITERAL}))*)\s*\))\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_AND = re.compile(r"and\b", re.IGNORECASE)
_ORDER = re.compile(rf"\s*(?P<key>{_NAME})(?:\s+(?P<how>asc|desc))?\s*", re.IGNORECASE)
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True)
class Search:
    """
    Args:
        group_ids: of the groups whose runs are meant.
        is_archived: only these, or only the others; None: all.
    """

    group_ids: Sequence[str]
    filter: str = ""
    order_by: Sequence[str] = ()
    is_archived: bool | None = False
    limit: int = 1000
    page_token: str = ""


@dataclass(frozen=True)
class _Key:
    kind: str
    name: str

    @property
    def is_number(self) -> bool:
        return self.kind == "metric" or (self.kind == "attribute" and self.name in _NUMBERS)


_Candidate = tuple[Job, Run, Mapping[str, Any]]
"""With the last value of each metric."""


async def search(
    session: AsyncSession, caller: Principal, asked: Search
) -> tuple[list[str], str | None]:
    """Return the ids of runs that the caller sees, and the token of the next page.

    Raises:
        InvalidValueError: of a part that is not valid.
    """
    if not 1 <= asked.limit <= MAX_RESULTS:
        raise InvalidValueError("max_results", asked.limit, f"must be 1 to {MAX_RESULTS}")
    for group_id in asked.group_ids:
        if not re.fullmatch(r"\d{1,18}", group_id, re.ASCII):
            raise InvalidValueError("experiment_ids", group_id[:80], "must be ids of experiments")
    clauses = _parse_filter(asked.filter)
    if len(asked.order_by) > MAX_PARTS:
        raise InvalidValueError("order_by", len(asked.order_by), f"has at most {MAX_PARTS} keys")
    orders = [_parse_order(each) for each in asked.order_by]
    newest, offset = _parse_token(asked.page_token)
    found = (
        select(Job, Run, JobProgress.metrics)
        .join(Run, Run.job_id == Job.id)
        .join(JobProgress, JobProgress.job_id == Job.id)
        .where(
            Job.kind == JobKind.RUN.value,
            *visible(caller, Job.project),
            or_(
                Run.group_id.in_([int(each) for each in asked.group_ids if each != DEFAULT_ID]),
                *([Run.group_id.is_(None)] if DEFAULT_ID in asked.group_ids else []),
            ),
        )
        .order_by(Job.started_at.desc(), Job.number.desc())
        .limit(MAX_SEARCHED + 1)
    )
    if newest is not None:
        found = found.where(Job.number <= newest)
    if asked.is_archived is not None:
        found = found.where(Job.archived.is_(asked.is_archived))
    candidates: list[_Candidate] = [tuple(row) for row in (await session.execute(found)).all()]
    if len(candidates) > MAX_SEARCHED:
        raise InvalidValueError(
            "experiment_ids", None,
            f"these experiments have more than {MAX_SEARCHED:,} runs; search fewer of them",
        )  # fmt: skip
    kept = [each for each in candidates if all(clause(each) for clause in clauses)]
    for key, is_descending in reversed(orders):
        # NaN, which equals nothing, comes last, too.
        present = [each for each in kept if not _is_missing(_value(each, key))]
        missing = [each for each in kept if _is_missing(_value(each, key))]
        present.sort(key=lambda each: _value(each, key), reverse=is_descending)
        kept = present + missing
    page = kept[offset : offset + asked.limit]
    following = None
    if offset + asked.limit < len(kept):
        last = newest if newest is not None else max(job.number for job, _, _ in candidates)
        following = f"{last}.{offset + asked.limit}"
    return [job.id for job, _, _ in page], following


def _is_missing(value: Any) -> bool:
    return value is None or value != value


def _parse_token(token: str) -> tuple[int | None, int]:
    """Return the number of the newest run of the first page, and an offset."""
    if not token:
        return None, 0
    if not re.fullmatch(r"\d{1,18}\.\d{1,9}", token, re.ASCII):
        raise InvalidValueError("page_token", token[:80], "was not handed out by this search")
    newest, _, offset = token.partition(".")
    return int(newest), int(offset)


def _parse_filter(text: str) -> list[Callable[[_Candidate], bool]]:
    if len(text) > MAX_FILTER:
        raise InvalidValueError("filter", None, f"has at most {MAX_FILTER} characters")
    clauses: list[Callable[[_Candidate], bool]] = []
    at = 0
    while text[at:].strip():
        found = _CLAUSE.match(text, at)
        if found is None:
            raise InvalidValueError(
                "filter", text[:200],
                f"cannot be read from {text[at : at + 40]!r} on; use clauses such as "
                "metrics.loss < 0.5 or params.lr = '0.1', joined by AND",
            )  # fmt: skip
        clauses.append(_clause(found))
        if len(clauses) > MAX_PARTS:
            raise InvalidValueError("filter", text[:200], f"has at most {MAX_PARTS} clauses")
        at = found.end()
        joined = _AND.match(text, at)
        if joined is None and text[at:].strip():
            raise InvalidValueError("filter", text[:200], "joins clauses by AND alone")
        at = joined.end() if joined is not None else at
    return clauses


def _clause(found: "re.Match[str]") -> Callable[[_Candidate], bool]:
    key = _parse_key(found["key"])
    if found["null"]:
        wants_none = "NOT" not in found["null"].upper()
        return lambda run: (_value(run, key) is None) is wants_none
    if found["in"]:
        values = {_text(each) for each in re.findall(_LITERAL, found["values"])}
        wanted = "NOT" not in found["in"].upper()

        def is_listed(run: _Candidate) -> bool:
            value = _value(run, key)
            return value is not None and (str(value) in values) is wanted

        return is_listed
    op, literal = found["op"].upper(), found["value"]
    if op in ("LIKE", "ILIKE"):
        if key.is_number:
            raise InvalidValueError("filter", found[0].strip(), f"{op} is for texts")
        like = _like(_text(literal), ignores_case=op == "ILIKE")

        def is_like(run: _Candidate) -> bool:
            value = _value(run, key)
            return value is not None and like.fullmatch(value) is not None

        return is_like
    wanted_value: float | str = _text(literal)
    if key.is_number:
        try:
            wanted_value = float(wanted_value)
        except ValueError:
            raise InvalidValueError("filter", found[0].strip(), "compares with a number") from None
    elif op not in ("=", "!="):
        message = f"{op} is for numbers; texts have = and !="
        raise InvalidValueError("filter", found[0].strip(), message)
    compare = _COMPARE[op]

    def holds(run: _Candidate) -> bool:
        value = _value(run, key)
        return value is not None and compare(value, wanted_value)

    return holds


def _like(pattern: str, *, ignores_case: bool) -> "re.Pattern[str]":
    """Return a pattern of LIKE as a regular expression.

    What was found between two `%` is not looked for again further on: the time would grow
    exponentially with their number.
    """
    first, *rest = (
        "".join("." if c == "_" else re.escape(c) for c in part) for part in pattern.split("%")
    )
    if rest:
        *between, last = rest
        first += "".join(f"(?>.*?{part})" for part in between if part) + f".*{last}"
    return re.compile(first, re.DOTALL | (re.IGNORECASE if ignores_case else 0))


def _text(literal: str) -> str:
    if literal[:1] in ("'", '"') and literal[-1:] == literal[:1]:
        return re.sub(r"\\(.)", r"\1", literal[1:-1])
    return literal


def _parse_order(text: str) -> tuple[_Key, bool]:
    found = _ORDER.fullmatch(text)
    if found is None:
        raise InvalidValueError("order_by", text[:80], "must be as in metrics.loss DESC")
    return _parse_key(found["key"], "order_by"), (found["how"] or "").lower() == "desc"


def _parse_key(text: str, field: str = "filter") -> _Key:
    kind, dot, name = text.partition(".")
    if not dot or text[0] in '`"':
        kind, name = "attribute", text
    if name[:1] in '`"':
        name = name[1:-1]
    known = _KINDS.get(kind.lower())
    if known is None:
        kinds = "metrics, params, tags and attributes"
        raise InvalidValueError(field, text[:80], f"{kind!r} is unknown; there are {kinds}")
    if known == "attribute":
        name = _ALIASES.get(name, name)
        if name not in (*_TEXTS, *_NUMBERS):
            message = f"there is no attribute {name!r}; use {', '.join((*_TEXTS, *_NUMBERS))}"
            raise InvalidValueError(field, text[:80], message)
    return _Key(known, name)


def _value(candidate: _Candidate, key: _Key) -> Any:
    job, run, metrics = candidate
    match key.kind:
        case "metric":
            value = metrics.get(key.name)
            return None if value is None else float(value)  # NaN is kept as text
        case "param":
            return run.parameters.get(key.name)
        case "tag":
            return job.name if key.name == NAME_TAG else run.tags.get(key.name)
    attributes: dict[str, Any] = {
        "run_id": job.id,
        "run_name": job.name,
        "status": status_of(job, run),
        "user_id": run.tags.get("mlflow.user", job.user),
        "start_time": milliseconds(job.started_at or job.created_at),
        "end_time": None if job.finished_at is None else milliseconds(job.finished_at),
    }
    return attributes.get(key.name)
