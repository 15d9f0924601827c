"""/ledger as JSON and as CSV."""

import httpx

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
