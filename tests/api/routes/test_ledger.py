"""/ledger as JSON and as CSV."""

import httpx
import pytest
from support.database import on_sqlite

LEDGER = "/api/v1/ledger"


async def test_empty_ledger_is_read_as_json_and_csv(client: httpx.AsyncClient) -> None:
    answer = await client.get(LEDGER, params={"by": "project"})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["by"], found["items"], found["until"]) == ("project", [], None)
    assert (found["total"]["device_hours"], found["total"]["useful_hours"]) == (0.0, None)
    by_format = await client.get(LEDGER, params={"by": "job", "format": "csv"})
    assert by_format.headers["content-type"] == "text/csv; charset=utf-8"
    assert by_format.headers["content-disposition"] == 'attachment; filename="ledger-by-job.csv"'
    assert by_format.text.startswith("job,job_id,user,project,jobs,device_hours,gpu_hours,")
    by_header = await client.get(LEDGER, params={"by": "job"}, headers={"Accept": "text/csv"})
    assert by_header.text == by_format.text


@pytest.mark.parametrize(
    ("since", "remedy"),
    [
        ("2026-11-01", "such as 2026-01-31T12:00:00Z"),
        ("2026-11-01T00:00:00", "such as 2026-01-31T12:00:00Z"),
        ("2026-11-01 00:00", "such as 2026-01-31T12:00:00Z"),
        ("2026-11-01T00:00:00 01:00", "such as 2026-01-31T12:00:00Z; in a URL write + as %2B"),
    ],
)
@on_sqlite
async def test_time_without_a_zone_is_refused(
    client: httpx.AsyncClient, since: str, remedy: str
) -> None:
    answer = await client.get(LEDGER, params={"since": since})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    message = f"must be a time with a zone in RFC 3339, {remedy}"
    assert (error["field"], error["message"]) == ("since", message)
