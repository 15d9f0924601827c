"""Settings of an OpenID provider, in the file and in the environment."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from trainhall.api.settings import Settings

FILE = """
[server.oidc]
issuer = "https://login.lab.example"
client-id = "trainhall"
client_secret_file = "{secret}"
scopes = ["profile", "groups"]

[[server.oidc.rules]]
group = "ops"
admin = true

[[server.oidc.rules]]
group = "leads"
project = "vision"
role = "maintainer"
"""


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("s3cret\n")
    return path


def test_table_of_the_file_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, secret: Path
) -> None:
    file = tmp_path / "trainhall.toml"
    file.write_text(FILE.format(secret=secret))
    monkeypatch.setenv("TRAINHALL_CONFIG", str(file))
    oidc = Settings().oidc
    assert oidc is not None
    assert (oidc.shown_name, oidc.client_secret()) == ("login.lab.example", "s3cret")
    assert oidc.scopes == ("openid", "profile", "groups")
    assert [rule.local_group for rule in oidc.rules] == [None, "oidc-maintainer-of-vision"]
    monkeypatch.setenv("TRAINHALL_OIDC_CLIENT_ID", "other")
    monkeypatch.setenv("TRAINHALL_OIDC_NAME", "Lab")
    changed = Settings().oidc
    assert changed is not None
    assert (changed.client_id, changed.shown_name) == ("other", "Lab")
    assert len(changed.rules) == 2


def test_environment_alone_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().oidc is None
    monkeypatch.setenv("TRAINHALL_OIDC_ISSUER", "http://localhost:9400")
    monkeypatch.setenv("TRAINHALL_OIDC_CLIENT_ID", "trainhall")
    monkeypatch.setenv("TRAINHALL_OIDC_RULES", '[{"group": "ops", "member_of": "team"}]')
    oidc = Settings().oidc
    assert oidc is not None
    assert (oidc.client_secret(), oidc.rules[0].member_of) == (None, "team")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"issuer": "http://login.lab.example"}, "must be an https:// URL"),
        ({"issuer": "login.lab.example"}, "must be an https:// URL"),
        ({"client_secret_file": "/nowhere/secret"}, "cannot be read"),
        ({"client_secret": "in the file"}, "Extra inputs"),
        ({"rules": [{"group": "a"}]}, "a rule gives one of"),
        ({"rules": [{"group": "a", "admin": True, "member_of": "b"}]}, "a rule gives one of"),
        ({"rules": [{"group": "a", "project": "b"}]}, "project and role need each other"),
        ({"rules": [{"group": "a", "project": "b", "role": "owner"}]}, "viewer"),
        ({"rules": [{"group": "a", "admin": False}]}, "True"),
        ({"rules": [{"group": "a", "member_of": "a/b"}]}, "must not contain '/'"),
        ({"rules": [{"group": "a", "project": "b" * 120, "role": "viewer"}]}, "too long for a"),
    ],
)
def test_wrong_settings_say_what_is_wrong(change: dict[str, object], message: str) -> None:
    values = {"issuer": "https://login.lab.example", "client_id": "trainhall", **change}
    with pytest.raises(ValidationError, match=message):
        Settings(oidc=values)
