"""Hashes of passwords."""

import asyncio
import threading

import pytest
from support.login.accounts import cheap_passwords
from support.waiting import PATIENCE

from trainhall.cluster.accounts import passwords as module
from trainhall.cluster.accounts.passwords import AT_ONCE, OF_NO_USER, Passwords
from trainhall.cluster.errors import TooManyError


async def test_password_is_hashed_by_argon2id() -> None:
    passwords = Passwords()
    hashed = await passwords.hash("correct horse")
    # As strong as what unknown users are compared with, which so takes as long.
    parameters = ["argon2id", "v=19", "m=65536,t=3,p=4"]
    assert hashed.split("$")[1:4] == OF_NO_USER.split("$")[1:4] == parameters
    assert await passwords.matches("correct horse", hashed)
    assert not await passwords.matches("correct hors", hashed)


async def test_unknown_user_matches_nothing() -> None:
    with cheap_passwords():
        passwords = Passwords()
        assert not await passwords.matches("password of no user", None)
        assert not await passwords.matches("", None)


async def test_equal_letters_are_equal_passwords() -> None:
    with cheap_passwords():
        passwords = Passwords()
        assert await passwords.matches("cafe\u0301 noir", await passwords.hash("caf\u00e9 noir"))


async def test_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    class Hasher:
        def hash(self, password: str) -> str:
            assert may_end.wait(60)
            return password

    monkeypatch.setattr(module, "_hasher", Hasher)
    passwords = Passwords()
    most = AT_ONCE + module.MAX_WAITING
    waiting = [asyncio.create_task(passwords.hash(str(number))) for number in range(most)]
    await asyncio.sleep(0)  # all are in the queue
    with pytest.raises(TooManyError):
        await passwords.hash("one more")
    waiting[-1].cancel()
    await asyncio.gather(waiting[-1], return_exceptions=True)
    waiting[-1] = asyncio.create_task(passwords.hash(str(most - 1)))
    may_end.set()
    assert await asyncio.gather(*waiting) == [str(number) for number in range(most)]


async def test_two_are_hashed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, both = 0, 0, threading.Event()
    lock = threading.Lock()

    class Hasher:
        def hash(self, password: str) -> str:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
                if running == AT_ONCE:
                    both.set()
            assert both.wait(PATIENCE)
            with lock:
                running -= 1
            return password

    monkeypatch.setattr(module, "_hasher", Hasher)
    passwords = Passwords()
    await asyncio.gather(*(passwords.hash(str(number)) for number in range(6)))
    assert most == AT_ONCE
