"""Settings: flags over environment over the file over defaults."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from trainhall.api.host.config_file import SettingsError, user_data_dir
from trainhall.api.server import serve
from trainhall.api.settings import Settings


def test_the_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    file.write_text('port = 1\nhost = "h1"\ninsecure = true\nslots = 3\n[server]\nhost = "h2"\n'
                    'data-dir = "/srv/x"\n[agent]\nport = 9\n')  # fmt: skip
    monkeypatch.setenv("TRAINHALL_CONFIG", str(file))
    read = Settings()
    assert (read.port, read.host, read.insecure) == (1, "h2", True)
    assert read.data_dir == Path("/srv/x")
    assert read.database == "sqlite:////srv/x/trainhall.db"
    monkeypatch.setenv("TRAINHALL_PORT", "2")
    monkeypatch.setenv("DATABASE_URL", "postgresql://x/y")
    assert Settings().port == 2
    assert Settings().database == "postgresql://x/y"
    assert Settings(port=3, database_url="sqlite://").port == 3
    assert Settings(port=3, database_url="sqlite://").database == "sqlite://"


def test_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("TRAINHALL_INSECURE", "")
    read = Settings()
    assert (read.host, read.port, read.insecure) == ("127.0.0.1", 8000, False)
    assert read.data_dir == user_data_dir()


def test_simulated_hosts_log_only_on_request() -> None:
    assert Settings().logged_level == "info"
    assert Settings(mock=True).logged_level == "warning"
    assert Settings(mock=True, log_level="info").logged_level == "info"


@pytest.mark.parametrize("value", ["1", "true", "yes"])
def test_insecure_by_the_environment(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TRAINHALL_INSECURE", value)
    assert Settings().insecure


def test_allowed_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHALL_ALLOWED_HOSTS", "Lab.example, other ,")
    assert Settings().allowed_hosts == {"lab.example", "other"}


def test_file_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINHALL_CONFIG", str(tmp_path / "missing.toml"))
    with pytest.raises(SettingsError, match=r"missing\.toml"):
        Settings()
    (tmp_path / "bad.toml").write_text("port = ")
    monkeypatch.setenv("TRAINHALL_CONFIG", str(tmp_path / "bad.toml"))
    with pytest.raises(SettingsError, match="not valid TOML"):
        Settings()
    (tmp_path / "bad.toml").write_text("server = 8000")
    with pytest.raises(SettingsError, match="server must be a table"):
        Settings()


def test_bad_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHALL_PORT", "70000")
    with pytest.raises(ValidationError, match="65535"):
        Settings()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PUBLIC_URL", "lab:8000", "public_url: must be a URL that agents can reach"),
        ("PUBLIC_URL", "http://lab:port", "public_url: must be a URL that agents can reach"),
        ("QUOTAS", "bob=1", "quotas: must be JSON, such as"),
        ("QUOTAS", "[1]", "quotas: must be an object"),
        ("QUOTAS", '{"user": {"bob": 1}}', "quotas.user: unknown key; did you mean 'users'?"),
        ("QUOTAS", '{"users": 3}', "quotas.users: must be an object"),
        ("QUOTAS", '{"users": {"bob": -1}}', "quotas.users.bob: must be at least 0"),
        ("PROJECTS", '{"a/b": {}}', "must not contain '/' (character 2)"),
        (
            "LOG_LEVEL",
            "warn",
            "log_level: must be one of debug, info, warning, error (given: warn)",
        ),
        ("LOST_AFTER", "-1", "lost_after: must be more than 0 (given: -1)"),
        ("SUSPECT_AFTER", "100", "trainhall: suspect_after must lie above"),
    ],
)
def test_bad_setting_is_named_at_start(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    name: str,
    value: str,
    message: str,
) -> None:
    monkeypatch.setenv(f"TRAINHALL_{name}", value)
    assert serve(host="127.0.0.1", port=0, data_dir=tmp_path, insecure=False) == 2
    assert message in capsys.readouterr().err


def test_quotas_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHALL_QUOTAS", '{"users": {"*": 8}}')
    assert Settings().quotas.users == {"*": 8}
