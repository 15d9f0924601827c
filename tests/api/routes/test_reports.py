"""/reports on both databases."""

from typing import Any

import httpx
from support.database import on_sqlite

API = "/api/v1/reports"
TEXT = "# Rates of\u00a0digits 👩\u200d🔬\n\n```chart\nquery: state:completed\nmetric: loss\n```\n"


async def test_report_is_created_listed_changed_and_deleted(client: httpx.AsyncClient) -> None:
    made = await client.post(API, json={"title": " Rates ", "text": TEXT})
    assert made.status_code == 201, made.text
    report = made.json()
    path = f"{API}/{report['id']}"
    assert made.headers["location"] == path
    assert (report["title"], report["text"], report["version"]) == ("Rates", TEXT, 1)
    assert (await client.get(path)).json() == report
    newer = (await client.post(API, json={"title": "Newer"})).json()
    page = (await client.get(API, params={"limit": 1})).json()
    rest = (await client.get(API, params={"cursor": page["next_cursor"]})).json()
    listed = page["items"] + rest["items"]
    assert [each["id"] for each in listed] == [newer["id"], report["id"]]
    assert all("text" not in each for each in listed)
    changed = (await client.patch(path, json={"version": 1, "title": "Learning rates"})).json()
    assert (changed["title"], changed["text"], changed["version"]) == ("Learning rates", TEXT, 2)
    assert (await client.delete(path)).status_code == 204
    reply = await client.get(path)
    detail = f"there is no report {report['id']!r}"
    assert (reply.status_code, reply.json()["detail"]) == (404, detail)


async def test_second_of_two_editors_is_refused(client: httpx.AsyncClient) -> None:
    path = f"{API}/{(await client.post(API, json={'title': 'r'})).json()['id']}"
    first = (await client.patch(path, json={"version": 1, "text": "first"})).json()
    reply = await client.patch(path, json={"version": 1, "text": "second"})
    assert reply.status_code == 409
    assert reply.json()["detail"] == (
        f"the report was changed at {first['updated_at']}, after you opened it (you edited "
        "version 1, the newest is 2); read it again and repeat your changes there"
    )
    assert (await client.get(path)).json() == first


BAD: list[tuple[dict[str, Any], str]] = [
    ({"title": " "}, "title"),
    ({"title": "a" * 129}, "title"),
    ({"title": "a\nb"}, "title"),
    ({"text": "a\0b"}, "text"),
    ({"text": "a\x1b[31m"}, "text"),
    ({"text": "a\x9b31m"}, "text"),
    ({"text": "a" * 50_001}, "text"),
    ({"body": "a"}, "body"),
]


@on_sqlite
async def test_impossible_report_is_refused(client: httpx.AsyncClient) -> None:
    made = (await client.post(API, json={"title": "r", "text": "é" * 50_000})).json()
    for change, field in BAD:
        for reply in (
            await client.post(API, json={"title": "r", **change}),
            await client.patch(f"{API}/{made['id']}", json={"version": 1, **change}),
        ):
            assert reply.status_code == 422, reply.text
            assert [error["field"] for error in reply.json()["errors"]] == [field], change
    for version in (0, "1", None):
        reply = await client.patch(f"{API}/{made['id']}", json={"version": version})
        assert [error["field"] for error in reply.json()["errors"]] == ["version"], version
    assert [each["version"] for each in (await client.get(API)).json()["items"]] == [1]
