"""Tables, formats and configuration."""

import errno
import io
import json
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml
from typer.main import get_command

from trainhall.api.settings import Settings
from trainhall.cli.base import config, output
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import Format
from trainhall.cli.main import app
from trainhall.cli.spec import specs

DOCS = Path(__file__).parents[3] / "docs"
COLUMNS = [
    output.Column("ID", lambda i: i["id"]),
    output.Column("STATE", lambda i: i["state"]),
    output.Column("STEP", lambda i: str(i["step"]), right=True),
]
ITEMS = [
    {"id": "aa", "state": "running", "step": 7},
    {"id": "b", "state": "", "step": 1200},
]


def test_table_aligns_wide_characters() -> None:
    items = [*ITEMS, {"id": "数字", "state": "failed", "step": 3}]
    assert output.table(items, COLUMNS).splitlines() == [
        "ID    STATE    STEP",
        "aa    running     7",
        "b     —        1200",
        "数字  failed      3",
    ]


def test_colour_changes_no_alignment() -> None:
    colored = output.table(ITEMS, COLUMNS, color=True)
    assert "\x1b[36mrunning\x1b[0m     7" in colored


WILD = "bad\r\n\tvalue \x1b[2J\x1b[31mred\x1b[0m\x1b]0;title\x07\x9b1A."


def test_output_neutralises_control_characters() -> None:
    columns = [output.Column("ID", lambda i: i["id"]), output.Column("REASON", lambda i: i["why"])]
    items = [{"id": WILD, "why": "one"}, {"id": "b", "why": WILD}]
    wanted = [f"{'ID':16}  REASON", "bad value red1A.  one", f"{'b':16}  bad value red1A."]
    for printed in (output.table(items, columns), output.table(items, columns, fits=60)):
        assert printed.splitlines() == wanted
    assert output.pairs([("reason", WILD)]).endswith("bad value red1A.")
    assert output.state_and_reason("failed", WILD) == "failed: bad value red1A."


def test_json_output_keeps_text_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    items = [{"id": "a", "why": WILD}]
    output.print_items(items, [], Format.JSON, empty="none")
    assert json.loads(capsys.readouterr().out) == items


def test_each_format(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_items(ITEMS, COLUMNS, Format.JSON, empty="none")
    assert json.loads(capsys.readouterr().out) == ITEMS
    output.print_items(ITEMS, COLUMNS, Format.YAML, empty="none")
    assert yaml.safe_load(capsys.readouterr().out) == ITEMS
    output.print_items(ITEMS, COLUMNS, Format.NAME, empty="none")
    assert capsys.readouterr().out == "aa\nb\n"
    output.print_items([], COLUMNS, Format.TABLE, empty="none")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "none\n")
    output.print_items([], COLUMNS, Format.JSON, empty="none")
    assert capsys.readouterr().out == "[]\n"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("peak_memory_bytes", 3.099e8, "295.5 MiB"),
        ("peak_memory_bytes", float("nan"), "nan"),
        ("samples_per_second", 63561.2, "63,560"),
        ("samples_per_second", 3.14159, "3.142"),
        ("loss", 0.0123456, "0.01235"),
        ("loss", "NaN", "NaN"),
        ("bytes_sent", None, "—"),
    ],
)
def test_metric_is_shown_in_its_unit(name: str, value: Any, text: str) -> None:
    assert output.measured(name, value) == text


def test_sizes_and_ages() -> None:
    assert [output.size(n) for n in (None, 0, 1023, 1536, 5 * 2**40)] == [
        "—", "0 B", "1023 B", "1.5 KiB", "5.0 TiB",
    ]  # fmt: skip
    now = datetime.now(UTC)
    job = {"attempt": 2, "ran_seconds": 90.0, "running_since": None}
    assert output.ran(job) == "1 min 30 s"
    since = (now - timedelta(minutes=10)).isoformat()
    assert output.ran(job | {"running_since": since}).startswith("11 min 3")
    assert output.ran({"attempt": 0, "ran_seconds": 0.0, "running_since": None}) == "—"


@pytest.mark.parametrize(
    "time",
    ["2026-01-01T12:00:05Z", "2026-01-01T12:00:05.987654Z", "2026-01-01T14:00:05.5+02:00"],
)
def test_moment_ends_at_the_second(time: str) -> None:
    assert output.moment(time) == "2026-01-01 12:00:05 UTC"


COMMANDS = get_command(app)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TRAINHALL_CONFIG", raising=False)
    return tmp_path


def test_no_file_means_no_defaults(folder: Path) -> None:
    assert config.default_map(COMMANDS) == {}


def test_shared_keys_reach_every_command_that_has_them(folder: Path) -> None:
    (folder / "trainhall.toml").write_text(
        'url = "http://lab:8000"\nport = 9\n[up]\nport = 10\ndata-dir = "d"\n'
    )
    found = config.default_map(COMMANDS)
    assert found["ls"] == {"url": "http://lab:8000"}
    assert found["nodes"]["add"] == {"url": "http://lab:8000"}
    assert found["server"] == {"port": 9}
    assert found["up"] == {"port": 10, "data_dir": "d"}
    assert found["doctor"] == {"url": "http://lab:8000", "port": 10, "data_dir": "d"}


def test_server_url_comes_from_environment_or_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINHALL_URL", raising=False)
    assert config.coordinator_url() == config.DEFAULT_URL
    (folder / "trainhall.toml").write_text('url = "http://lab:8000"\n')
    assert config.coordinator_url() == "http://lab:8000"
    monkeypatch.setenv("TRAINHALL_URL", "http://other:8000")
    assert config.coordinator_url() == "http://other:8000"


def test_config_allows_coordinator_settings_in_table(folder: Path) -> None:
    flags = {
        "host", "port", "data_dir", "database_url", "insecure", "mock", "tls_cert", "tls_key",
        "tls_self_signed", "forward_domain",
    }  # fmt: skip
    assert set(config.SERVER_ONLY) == Settings.model_fields.keys() - flags
    for name in config.SERVER_ONLY:
        (folder / "trainhall.toml").write_text(f"[server]\nport = 9\n{name} = 1\n")
        assert config.default_map(COMMANDS)["server"]["port"] == 9
    (folder / "trainhall.toml").write_text("[server]\nagein = 1\n")
    with pytest.raises(UsageError, match="priority_ageing"):
        config.default_map(COMMANDS)


def test_files_in_the_documents_are_read(folder: Path) -> None:
    pages = "".join(page.read_text() for page in sorted(DOCS.glob("*.md")))
    found = re.findall(r"^```toml\n(.*?)^```", pages, re.DOTALL | re.MULTILINE)
    assert len(found) >= 2
    secret = folder / "oidc.secret"
    secret.write_text("secret")
    for text in found:
        text = text.replace("/etc/trainhall/oidc.secret", str(secret))
        (folder / "trainhall.toml").write_text(text)
        config.default_map(COMMANDS)
        Settings()


def test_config_defaults_apply_to_aliases(folder: Path) -> None:
    (folder / "trainhall.toml").write_text('output = "name"\n')
    found = config.default_map(COMMANDS)
    assert found["nodes"]["list"] == found["nodes"]["ls"] == {"output": "name"}
    # Here it is a folder.
    assert found["run"] == {}
    # These know no names.
    assert found["doctor"] == found["logs"] == found["plan"] == found["verify"] == {}
    assert found["bench"]["collectives"] == {}


def test_table_ends_with_the_terminal() -> None:
    rows = [{"id": "a", "why": "short"}, {"id": "b", "why": "a reason that is much too long"}]
    columns = [output.Column("ID", lambda r: r["id"]), output.Column("WHY", lambda r: r["why"])]
    assert output.table(rows, columns, fits=16).splitlines() == [
        "ID  WHY", "a   short", "b   a reason th…",
    ]  # fmt: skip
    assert output.table(rows, columns).splitlines()[2] == "b   a reason that is much too long"
    assert "b   a …" in output.table(rows, columns, fits=3), "the title's room is always there"


def test_table_drops_optional_columns_first() -> None:
    rows = [{"id": "3f2a9c51d07b", "age": "3 h", "steps": "120/600", "why": "x" * 60}]
    columns = [
        output.Column("ID", lambda r: r["id"]),
        output.Column("STEPS", lambda r: r["steps"], spare=2),
        output.Column("AGE", lambda r: r["age"], spare=1),
        output.Column("WHY", lambda r: r["why"]),
    ]

    def titles(fits: int | None) -> list[str]:
        return output.table(rows, columns, fits=fits).splitlines()[0].split()

    assert titles(None) == titles(60) == ["ID", "STEPS", "AGE", "WHY"]
    assert titles(55) == ["ID", "STEPS", "WHY"]
    assert titles(50) == ["ID", "WHY"]
    rows[0]["why"] = "short"
    assert titles(40) == ["ID", "STEPS", "AGE", "WHY"], "there is nothing to make room for"


def test_redundant_reason_is_omitted() -> None:
    assert output.state_and_reason("cancelled", "cancelled") == "cancelled"
    assert output.state_and_reason("queued", "") == "queued"
    assert output.state_and_reason("queued", "submitted") == "queued: submitted"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = ", "not valid TOML"),
        ("prot = 1", "prot"),
        ("[sever]\nport = 1", "sever"),
        ('[server]\nurl = "x"', "url"),
    ],
)
def test_config_error_names_the_key(folder: Path, text: str, message: str) -> None:
    (folder / "trainhall.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        config.default_map(COMMANDS)


def test_file_that_is_named_must_exist(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHALL_CONFIG", str(folder / "no.toml"))
    with pytest.raises(UsageError, match=r"no\.toml"):
        config.default_map(COMMANDS)


@pytest.mark.parametrize("read", [config.coordinator_url, lambda: config.default_map(COMMANDS)])
def test_broken_config_file_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[], object]
) -> None:
    monkeypatch.delenv("TRAINHALL_URL", raising=False)
    file = folder / "trainhall.toml"
    for content in (b"port = ", b"\xff"):
        file.write_bytes(content)
        with pytest.raises(UsageError, match=r"trainhall\.toml is not valid TOML"):
            read()
    for call in ("read_text", "is_file"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, call, denied)
            with pytest.raises(UsageError, match=r"toml cannot be read: Permission denied"):
                read()


def denied(*_: Any, **__: Any) -> NoReturn:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_overrides_are_taken_apart_at_the_first_sign() -> None:
    assert specs.parse_overrides(["a.b=1", "c=x=y", "d=''"]) == {"a.b": "1", "c": "x=y", "d": "''"}
    for wrong in ("a", "=1", " =1"):
        with pytest.raises(UsageError, match="FIELD=VALUE"):
            specs.parse_overrides([wrong])
    # `--set training.steps=$STEPS` without STEPS would train for another time than was meant.
    with pytest.raises(UsageError, match=r"training\.steps= has no value; training\.steps=null"):
        specs.parse_overrides(["training.steps="])


def test_wrong_spec_lists_its_fields(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: x\ntask: {name: digits}\ntrainning: {steps: 1}\npriority: much\n")
    with pytest.raises(UsageError) as caught:
        specs.load(str(file), None)
    assert "job.yaml is not a valid job spec" in caught.value.message
    details = "\n".join(caught.value.details)
    assert "trainning: unknown key; did you mean 'training'?" in details
    assert "priority: " in details
    assert "given: much" in details


def test_spec_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file"):
        specs.load(str(tmp_path / "no.yaml"), None)
    with pytest.raises(UsageError, match="is a folder"):
        specs.load(str(tmp_path), None)


def test_relative_script_becomes_absolute(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "lab").mkdir()
    (folder / "lab" / "job.yaml").write_text("name: x\nscript: {path: train.py}\n")
    spec = specs.load("lab/job.yaml", None)
    assert spec.script is not None
    assert spec.script.path == str(folder / "lab" / "train.py")
    text = io.TextIOWrapper(io.BytesIO(b"name: x\nscript: {path: train.py}\n"))
    monkeypatch.setattr("sys.stdin", text)
    spec = specs.load("-", ["script.path=other.py"])
    assert spec.script is not None
    assert spec.script.path == str(folder / "other.py")


def test_code_of_standard_input_is_in_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = io.TextIOWrapper(io.BytesIO(b"name: x\ncode: .\nscript: {path: train.py}\n"))
    monkeypatch.setattr("sys.stdin", text)
    assert specs.load("-", None).code == str(folder)


@pytest.mark.parametrize(
    ("metric", "named", "alone"),
    [
        ({"name": "val/f1", "value": 0.91234, "goal": "max"}, "val/f1 0.9123", "0.9123"),
        ({"name": "loss", "value": "NaN", "goal": "min"}, "loss NaN", "NaN"),
        ({"name": "val/f1", "value": None, "goal": "max"}, "—", "—"),
        (None, "—", "—"),
    ],
)
def test_main_metric_has_its_name_and_latest_value(metric: Any, named: str, alone: str) -> None:
    job = {"main_metric": metric}
    assert output.main_metric(job) == named
    assert output.main_metric(job, named=False) == alone
