import pytest

from trainhall.api.forward.origins import ForwardDomain, JobPort, check_beside, domain_name

DOMAIN = ForwardDomain("fwd.example.org")
PLACE = JobPort("3f2a9c51d07b", 8888)


@pytest.mark.parametrize(
    ("base", "origin"),
    [
        ("http://127.0.0.1:8000", "http://3f2a9c51d07b-8888.fwd.example.org:8000"),
        ("https://hall.example.org", "https://3f2a9c51d07b-8888.fwd.example.org"),
    ],
)
def test_origin_is_read_back(base: str, origin: str) -> None:
    assert DOMAIN.origin(PLACE, base) == origin
    assert DOMAIN.parse("3f2a9c51d07b-8888.fwd.example.org") == PLACE


@pytest.mark.parametrize(
    "host",
    [
        "fwd.example.org", "x.fwd.example.org", "a-0.fwd.example.org", "a-65536.fwd.example.org",
        "a-08.fwd.example.org", "a-8.fwd.example.org.evil.org", "a-8.b-8.fwd.example.org",
        "a-8.example.org", "a_-8.fwd.example.org", "localhost", "127.0.0.1",
    ],
)  # fmt: skip
def test_other_hosts_are_no_ports(host: str) -> None:
    assert DOMAIN.parse(host) is None


def test_domains_are_checked() -> None:
    assert domain_name("*.FWD.example.org") == "fwd.example.org"
    for wrong in ("", "a b", "http://x.org", "x.org:80", "10.0.0.1", ".x.org", "x..org"):
        with pytest.raises(ValueError, match="not a domain"):
            domain_name(wrong)


def test_domains_that_share_cookies_are_refused() -> None:
    check_beside("fwd.example.org", frozenset({"hall.example.org"}))
    for own in ("example.org", "fwd.example.org", "hall.fwd.example.org"):
        with pytest.raises(ValueError, match="one below the other"):
            check_beside("fwd.example.org", frozenset({own}))
