from starlette.datastructures import Headers

from trainhall.api.forward.headers import to_browser, to_program


def test_program_sees_no_way_and_no_credential() -> None:
    headers = Headers(
        {
            "host": "a-1.fwd.test",
            "connection": "keep-alive, X-Hop",
            "x-hop": "1",
            "cookie": "__Host-trainhall-forward=s; k=v",
            "x-forwarded-for": "1.2.3.4",
            "origin": "https://a-1.fwd.test",
            "referer": "https://other.test/secret",
            "authorization": "token abc",
            "sec-websocket-key": "x",
        }
    )
    assert dict(to_program(headers, 80)) == {
        b"authorization": b"token abc", b"cookie": b"k=v", b"origin": b"http://127.0.0.1:80",
    }  # fmt: skip


def test_referer_is_an_address_of_the_program() -> None:
    def referer(text: str) -> str | None:
        given = Headers({"host": "a-1.fwd.test", "referer": text})
        return dict(to_program(given, 80)).get(b"referer", b"").decode() or None

    assert referer("https://a-1.fwd.test/lab?a") == "http://127.0.0.1:80/lab?a"
    for other in ("http://[::1/", "https://a-1.fwd.test.evil.org/", "a-1.fwd.test/lab", "//"):
        assert referer(other) is None, other


def test_redirects_stay_on_the_origin() -> None:
    def location(text: bytes) -> bytes:
        ((_, value),) = to_browser([(b"Location", text)], 80)
        return value

    assert location(b"http://127.0.0.1:80/lab?a") == b"/lab?a"
    assert location(b"http://localhost:80") == b"/"
    for other in (b"http://127.0.0.1:8000/", b"http://127.0.0.1:80//evil.org", b"/lab", b"//x"):
        assert location(other) == other


def test_cookies_stay_on_the_origin() -> None:
    pairs = [
        (b"Set-Cookie", b"a=1; Path=/; DOMAIN=.fwd.test; Secure"),
        (b"Set-Cookie", b"__Host-trainhall-forward=x"),
        (b"Alt-Svc", b"h3=1"), (b"Clear-Site-Data", b'"cookies"'),
        (b"Transfer-Encoding", b"chunked"), (b"X", b"1"),
    ]  # fmt: skip
    assert to_browser(pairs, 80) == [(b"set-cookie", b"a=1; Path=/; Secure"), (b"x", b"1")]
