"""Finished jobs in bulk, inserted by SQL: what a database holds after months of use."""

import json

from sqlalchemy import text

from trainhall.db.database import Database
from trainhall.training.spec.parse import validate_spec

# Micros of 2023-11-14T22:13:20Z; a job a minute follows.
_START, _MINUTE = 1_700_000_000_000_000, 60_000_000
_FIRST_NUMBER = 1_000_000
"""Numbers of finished jobs lie above those of jobs that a test submits before."""
_ALLOCATION = [
    {
        "node_id": "0" * 12,
        "node_name": "old",
        "node_rank": 0,
        "ranks": [
            {"rank": rank, "local_rank": rank, "device_index": rank, "device_kind": "cpu"}
            for rank in range(2)
        ],
    }
]
_FAILURE = {"rank": 1, "exit_code": 1, "message": "rank 1 raised ValueError", "cause": "user_code"}

_JOB = "'f' || (10000000000 + i)"
_STATE = "CASE WHEN i % 20 = 0 THEN 'failed' WHEN i % 33 = 0 THEN 'cancelled' ELSE 'completed' END"
_FINISHED = f"{_START} + i * {_MINUTE}"
# By table: columns and their values, of job `i`, and of each `k` from 1 to the count.
_ROWS: dict[str, tuple[int, dict[str, str]]] = {
    "jobs": (1, {
        "id": _JOB, "number": f"{_FIRST_NUMBER} + i", "name": "'old-' || i", "spec": ":spec",
        "user": "'maria'", "task": "'synthetic'", "strategy": "'ddp'", "priority": "0",
        "state": _STATE, "reason": "'finished'", "reason_code": "'completed'", "attempt": "1",
        "generation": "1", "world_size": "2", "restarts": "0", "restarts_step": "0",
        "pauses_after": "0", "archived": ":no",
        "created_at": _FINISHED, "queued_at": _FINISHED, "started_at": _FINISHED,
        "finished_at": _FINISHED,
    }),
    "job_progress": (1, {
        "job_id": _JOB, "stream_seq": "6", "stream_trimmed": "0", "log_bytes": "0", "step": "100",
        "total_steps": "100", "metrics": ":metrics", "ranges": ":ranges",
    }),
    "attempts": (1, {
        "job_id": _JOB, "number": "1", "generation": "1", "state": _STATE,
        "reason": "'finished'", "reason_code": "'completed'", "goal": "'run'",
        "revoked": ":no", "world_size": "2",
        "allocation": ":allocation", "checkpoint_plan": ":plan", "in_place": ":no",
        "generations": ":empty_list", "planning": ":no", "asks_to_stop": ":no",
        "node_outcomes": ":empty",
        "first_step": "1", "started_at": _FINISHED, "running_at": _FINISHED,
        "finished_at": _FINISHED, "failure": "CASE WHEN i % 20 = 0 THEN {failure} END",
        "began": ":empty", "gpus": "2", "gpus_since": _FINISHED, "gpu_seconds": "3600",
    }),
    "ledger": (1, {
        "job_id": _JOB, "attempt": "1", "name": "'old-' || i", "user": "'maria'",
        "device": "'cuda'", "is_open": ":no",
        "counted_until": _FINISHED, "held_seconds": "3600", "useful_seconds": "3000",
        "redone_seconds": "200", "data_seconds": "100", "idle_seconds": "300",
        "last_step": "100", "metered_seconds": "3600", "energy_joules": "1000000",
    }),
    "events": (6, {
        "job_id": _JOB, "seq": "k", "time": _FINISHED, "kind": "'state'", "code": "'completed'",
        "reason": "'finished'",
        "attempt": "1", "data": ":empty",
    }),
    "queue_positions": (3, {
        "job_id": _JOB, "since": f"{_FINISHED} + k", "until": f"{_FINISHED} + k + 1",
        "position": "4 - k",
    }),
    "checkpoints": (3, {
        "id": "'c' || (20000000000 + i * 10 + k)", "job_id": _JOB, "attempt": "1",
        "generation": "1", "step": "k * 10", "name": "'step-0000000' || k || '-a1-g1'",
        "location": "'/shared/' || i || '/' || k", "size": "1000000", "pinned": ":no",
        "state": "CASE WHEN k = 3 THEN 'committed' ELSE 'deleted' END", "metrics": ":empty",
        "created_at": _FINISHED,
    }),
    "writers": (2, {
        "job_id": _JOB, "attempt": "1", "name": "'rank-' || k", "metric_sequence": "100",
        "event_sequence": "3",
    }),
    "log_streams": (2, {
        "job_id": _JOB, "attempt": "1", "rank": "k - 1", "stream": "'stdout'", "length": "1000",
        "sources": ":empty", "newest_source": "''", "carry": ":bytes",
    }),
    "log_chunks": (2, {
        "job_id": _JOB, "seq": "k", "attempt": "1", "rank": "k - 1", "stream": "'stdout'",
        "offset": "0", "length": "1000", "time": _FINISHED, "data": ":bytes", "superseded": ":no",
    }),
    "metric_frames": (2, {
        "job_id": _JOB, "seq": "k + 2", "attempt": "1", "payload": ":bytes", "tables": "1",
        "superseded": ":no", "packed": ":yes",
    }),
    "series": (2, {
        "id": f"{_FIRST_NUMBER} + i * 2 + k", "job_id": _JOB, "attempt": "1", "rank": "-1",
        "name": "'metric-' || k", "superseded": ":no", "points": "100", "last_step": "100",
        "ordered": ":yes",
    }),
    "metric_chunks": (2, {
        "series_id": f"{_FIRST_NUMBER} + i * 2 + k", "level": "0", "index": "0",
        "last_step": "100", "count": "100", "data": ":bytes",
    }),
}  # fmt: skip


async def add_finished_jobs(database: Database, count: int) -> None:
    """Add `count` finished jobs with their attempts, events, checkpoints, metrics and output.

    One of 20 failed. ANALYZE follows, as the upkeep of Postgres would run it.
    """
    spec = validate_spec(
        {"name": "old", "task": {"name": "synthetic"}, "resources": {"workers": 2}}
    )
    given = {
        "spec": spec.model_dump(mode="json"),
        "metrics": {"loss": 0.5},
        "ranges": {"loss": [0.25, 2.5]},
        "allocation": _ALLOCATION,
        "plan": {"folder": "/shared", "upload": False, "resume": []},
        "failure": _FAILURE,
        "empty": {},
        "empty_list": [],
    }
    postgres = database.dialect == "postgresql"
    literals = {name: _json(value, postgres=postgres) for name, value in given.items()}
    literals |= {
        "no": "false" if postgres else "0",
        "yes": "true" if postgres else "1",
        "bytes": "'x'::bytea" if postgres else "x'78'",
    }
    async with database.transaction() as session:
        for table, (each, columns) in _ROWS.items():
            names = ", ".join(f'"{name}"' for name in columns)
            values = ", ".join(_filled(value, literals) for value in columns.values())
            statement = (
                f"INSERT INTO {table} ({names}) WITH RECURSIVE {_numbers('of_jobs', 'i', count)},"
                f" {_numbers('of_parts', 'k', each)} SELECT {values} FROM of_jobs, of_parts"
            )
            # No colon in it is a parameter's.
            await session.execute(text(statement.replace(":", r"\:")))
        if postgres:
            await session.execute(text("ANALYZE"))


def _numbers(table: str, column: str, count: int) -> str:
    following = f"SELECT {column} + 1 FROM {table} WHERE {column} < {count}"
    return f"{table}({column}) AS (SELECT CAST(1 AS BIGINT) UNION ALL {following})"


def _filled(value: str, literals: dict[str, str]) -> str:
    return literals[value[1:]] if value.startswith(":") else value.format(**literals)


def _json(value: object, *, postgres: bool) -> str:
    quoted = "'" + json.dumps(value).replace("'", "''") + "'"
    return f"{quoted}::json" if postgres else quoted
