"""Text that not each database takes, such as U+0000, is refused wherever a name is given."""

import base64
import json
from typing import Any

import pytest
from support.login.accounts import Person

from trainhall.cluster import pagination

NUL, HALF = "a\0b", "a\ud800b"
LONG = "x" * 50
ALERT = {"name": "a", "on": ["job.failed"], "target": {"kind": "browser"}}
CODE = f"training/code/{'a' * 64}"


@pytest.mark.parametrize("text", [NUL, HALF])
async def test_unstorable_text_in_bodies_is_refused(admin: Person, text: str) -> None:
    bodies: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "auth/login", {"name": text, "password": LONG}),
        ("POST", "auth/login", {"name": "maria", "password": text}),
        ("POST", "auth/link", {"code": text}),
        ("POST", "auth/device", {"client": text}),
        ("POST", "auth/device/token", {"device_code": text}),
        ("POST", "auth/browser/token", {"code": text, "verifier": LONG, "client": "x"}),
        ("POST", "auth/tokens", {"name": "ci", "user": text}),
        ("POST", "auth/tokens", {"name": "ci", "project": text}),
        ("POST", "users", {"name": text}),
        ("POST", "users", {"name": "ci", "kind": "service", "project": text}),
        ("POST", "projects", {"name": text}),
        ("POST", "groups", {"name": text}),
        ("POST", "reports", {"title": "t", "text": "", "project": text}),
        ("POST", "alerts", {**ALERT, "scope": {"kind": "user", "value": text}}),
        ("POST", "alerts", {**ALERT, "scope": {"kind": "job", "value": text}}),
    ]
    for method, path, body in bodies:
        headers = {"Content-Type": "application/json"}
        reply = await admin.request(method, path, content=json.dumps(body), headers=headers)
        assert 400 <= reply.status_code < 500, (path, body, reply.text)


async def test_unstorable_text_in_urls_is_refused(admin: Person) -> None:
    for method, path in (
        ("GET", "auth/tokens?user=%00"),
        ("DELETE", "auth/tokens/%00"),
        ("DELETE", "auth/sessions/%00"),
        ("GET", "auth/device/%00"),
        ("DELETE", "users/%00"),
        ("GET", "projects/%00"),
        ("GET", "projects/%00/members"),
        ("DELETE", "projects/default/members/%00"),
        ("DELETE", "projects/default/members/group:%00"),
        ("DELETE", "groups/%00"),
        ("PUT", "groups/%00/members/maria"),
        ("GET", "audit?user=%00"),
        ("GET", "audit?object=%00"),
        ("GET", "audit?action=%00"),
        ("GET", "audit?project=%00"),
        ("GET", "experiments?user=%00"),
        ("GET", "reports?project=%00"),
        ("GET", "alerts/%00"),
        ("DELETE", "views/%00"),
        ("PUT", f"{CODE}?project=%00"),
    ):
        reply = await admin.request(method, path)
        assert reply.status_code in (404, 415, 422), (path, reply.text)


@pytest.mark.parametrize("kind", ["users", "groups", "projects"])
async def test_unstorable_text_in_cursors_is_refused(admin: Person, kind: str) -> None:
    whole = pagination.encode(kind, "ab")
    halved = base64.urlsafe_b64encode(f'["{kind}","\\ud800"]'.encode())
    assert (await admin.get(kind, params={"cursor": whole})).status_code == 200
    for cursor in (pagination.encode(kind, NUL), halved.decode().rstrip("=")):
        assert (await admin.get(kind, params={"cursor": cursor})).status_code in (400, 422)
