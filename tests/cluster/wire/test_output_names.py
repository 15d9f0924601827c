"""Names of output files: any path of a host, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhall.cluster.wire.output_names import OutputNameError, name_of, path_of

PARTS = st.binary(min_size=1, max_size=40).filter(
    lambda part: part not in (b".", b"..") and not {0, ord("/")} & set(part)
)


@given(st.lists(PARTS, min_size=1, max_size=4).map(b"/".join))
def test_every_path_survives_as_a_line_of_text(path: bytes) -> None:
    name = name_of(path)
    assert path_of(name) == path
    assert len(name.splitlines()) == 1


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (b"runs/a b.pt", "runs/a b.pt"),
        ("größe/日本.txt".encode(), "größe/日本.txt"),
        (b"two\nlines", r"two\x0alines"),
        (b"latin-\xe9", r"latin-\xe9"),
        (b"back\\slash", r"back\\slash"),
        ("\u202etxt.exe".encode(), r"\xe2\x80\xaetxt.exe"),
    ],
)
def test_only_what_a_line_cannot_hold_is_escaped(path: bytes, name: str) -> None:
    assert name_of(path) == name


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "a/../b", "..", "a//b", "a/", "./a", r"a\x2e\x2e", r"\x2fa", r"a\x00",
     "a\\", "a\\z", "a\nb", "\ud800", "a" * 1025, r"\x41"],
)  # fmt: skip
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(OutputNameError):
        path_of(name)


def test_longest_path_has_a_name() -> None:
    assert name_of(b"a" * 1024)
    with pytest.raises(OutputNameError, match="1024"):
        name_of(b"\xff" * 300)
