"""What the pages of the login do, without a browser."""

from urllib.parse import parse_qs, urlsplit

import httpx
from fastapi import FastAPI
from support.waiting import eventually

from trainhall.api.login.command_logins import CommandLogins


def page_of_commands(browser: httpx.Client, page: str, approves: bool) -> None:
    """Answer as the page does that `trainhall login` opened."""
    query = {name: values[0] for name, values in parse_qs(urlsplit(page).query).items()}
    back = {"state": query["state"]}
    if approves:
        made = browser.post("/auth/browser", json={"challenge": query["challenge"]})
        back["code"] = made.json()["code"]
    httpx.get(f"http://127.0.0.1:{query['port']}/", params=back)


def approve_by_code(browser: httpx.Client, app: FastAPI, approves: bool) -> None:
    """Wait for commands that show a code, and answer them."""
    logins: CommandLogins = app.state.command_logins
    waiting = eventually("commands that wait", lambda: list(logins._devices.values()))
    for device in waiting:
        reply = browser.put(f"/auth/device/{device.user_code}", json={"approve": approves})
        assert reply.status_code == 204
