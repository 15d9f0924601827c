from typing import Any

from trainhall.api.forward import accesses
from trainhall.api.forward.accesses import Access, Accesses
from trainhall.api.forward.origins import JobPort

PLACE = JobPort("a", 1)
TUNNEL: Any = None


def test_links_and_cookies_end() -> None:
    now = 0.0
    kept = Accesses(lambda: now)
    access = Access(PLACE, TUNNEL, is_tls=False)
    late = kept.add_link(access)
    opened = kept.open_link(kept.add_link(access), PLACE)
    assert opened is not None
    assert kept.find(opened[0], PLACE) is access
    now = accesses.LINK_SECONDS
    assert kept.open_link(late, PLACE) is None
    now = accesses.ACCESS_SECONDS
    assert kept.find(opened[0], PLACE) is None


def test_link_counts_once_and_for_its_port() -> None:
    kept = Accesses()
    secret = kept.add_link(Access(PLACE, TUNNEL, is_tls=False))
    assert kept.open_link(secret, JobPort("a", 2)) is None
    assert kept.open_link(secret, PLACE) is not None
    assert kept.open_link(secret, PLACE) is None


def test_oldest_are_forgotten() -> None:
    kept = Accesses()
    access = Access(PLACE, TUNNEL, is_tls=False)
    secrets = [kept.add_link(access) for _ in range(accesses.MAX_KEPT + 1)]
    assert kept.open_link(secrets[0], PLACE) is None
    assert kept.open_link(secrets[1], PLACE) is not None
