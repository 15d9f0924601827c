"""`trainhall bench`: tables, curves and drawings of collectives, and clear words for bad input."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainhall.cli.base import quantities
from trainhall.cli.base.errors import CliError, UsageError
from trainhall.cli.main import app

QUICK = ("--simulate", "--ranks", "2,24", "--sizes", "1KiB,1GB")


def printed(*arguments: str) -> str:
    """What `trainhall bench` prints on stdout."""
    done = CliRunner().invoke(app, ["bench", *arguments])
    if done.exception:
        raise done.exception
    return done.stdout


def refused(*arguments: str) -> str:
    with pytest.raises(UsageError) as error:
        printed(*arguments)
    return str(error.value)


def test_table_of_times_and_crossovers() -> None:
    times, crossovers = printed("collectives", *QUICK).split("\n\n")
    head, *rows = times.splitlines()
    assert head.split()[:4] == ["RANKS", "SIZE", "RING", "TREE"]
    assert len(rows) == 4
    assert rows[3].split()[:3] == ["24", "953.7", "MiB"]
    assert rows[3].split()[-1] == "ring"
    assert crossovers.splitlines()[0].split() == ["RANKS", "CROSSOVER", "BELOW", "ABOVE"]
    assert crossovers.splitlines()[-1].endswith("hierarchical  ring")


def test_same_as_json() -> None:
    found = json.loads(
        printed("collectives", *QUICK, "-o", "json", "--link", "host=0.5us,80Gbit/s",
             "--algorithms", "tree,ring")
    )  # fmt: skip
    assert found["cluster"]["links"]["host"] == {"latency": 5e-7, "bandwidth": 1e10}
    assert {time["algorithm"] for time in found["times"]} == {"tree", "ring"}
    assert len(found["times"]) == 2 * 2 * 2
    first = found["times"][1]
    assert (first["ranks"], first["size"], first["algorithm"]) == (2, 1024, "ring")
    assert first["seconds"] == pytest.approx(5e-7 + 1024 / 1e10)  # of two ranks one exchange
    assert {crossing["above"] for crossing in found["crossovers"]} == {"ring"}


def test_curves(tmp_path: Path) -> None:
    path = tmp_path / "times.png"
    printed("collectives", "--simulate", "--ranks", "24", "--sizes", "1MB", "--plot", str(path))
    assert path.stat().st_size > 10_000


def test_a_drawing(tmp_path: Path) -> None:
    path = tmp_path / "ring.svg"
    text = printed("schedule", "hierarchical", "--devices-per-host", "2", "--svg", str(path))
    assert text.startswith("hierarchical all-reduce, 4 ranks, 2 chunks\n\nround")
    assert path.read_text(encoding="utf-8").startswith("<svg")
    with pytest.raises(CliError, match=r"cannot write .*: No such file or directory"):
        printed("schedule", "ring", "--svg", str(tmp_path / "none" / "ring.svg"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ranks", "1"), "--ranks takes integers from 2 to 4,096, not '1'"),
        (("--ranks", "2,many"), "--ranks takes integers from 2 to 4,096, not 'many'"),
        (("--ranks", "4097"), "not '4097'"),
        (("--sizes", "1KiB,,2KiB"), "--sizes takes a size, such as 64KiB or 1GB, not ''"),
        (("--sizes", "0"), "not '0'"),
        (("--sizes", "5 apples"), "not '5 apples'"),
        (("--algorithms", "ring,star"), "there is no algorithm 'star'; known: ring, tree"),
        (("--servers", "3"), "servers is 3; servers are ranks"),
        (("--link", "rack"), "--link takes CLASS=LATENCY,BANDWIDTH, as in rack=10us,100Gbit/s"),
        (("--link", "star=1us,1GB/s"), "the classes are device, host, rack, racks"),
        (("--link", "rack=1,1GB/s"), "--link takes a latency, such as 10us, not '1'"),
        (("--link", "rack=1us,1GB"), "--link takes a bandwidth, such as 100Gbit/s or"),
        (("--plot", "times.txt"), "--plot writes .png, .svg or .pdf files, not 'times.txt'"),
        (("--plot", "none/times.png"), "the folder none does not exist"),
        (("--plot", "/proc/times.png"), "--plot cannot write /proc/times.png: "),
    ],
)
def test_bad_input_is_a_clear_message(arguments: tuple[str, ...], message: str) -> None:
    assert message in refused("collectives", "--simulate", *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ranks", "17"), "--ranks takes integers from 2 to 16, not '17'"),
        (("--ranks", "1"), "from 2 to 16, not '1'"),
        (("--sizes", "5"), "--sizes takes multiples of 4 bytes, up to 256MiB, not '5'"),
        (("--sizes", "1GiB"), "up to 256MiB, not '1GiB'"),
        (("--limits", "fast"), "--limits takes a bandwidth, such as 100Gbit/s"),
        (("--link", "host=1us,1GB/s"), "--link needs --simulate"),
        (("--devices-per-host", "2"), "--devices-per-host needs --simulate"),
        (("--simulate", "--limits", "1Gbit/s"), "--limits is for measured times"),
        (("--simulate", "--report", "results"), "--report is for measured times"),
        (("--report", __file__), "--report takes a folder, and"),
        (("--report", "/proc/results"), "--report cannot write to /proc/results: "),
    ],
)
def test_bench_refuses_bad_measurement_options(arguments: tuple[str, ...], message: str) -> None:
    assert message in refused("collectives", *arguments)


def test_bench_reports_missing_network_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(CliError, match="limited links take Linux, root, and iproute2"):
        printed("collectives", "--limits", "1Gbit/s")


def test_bench_refuses_bad_drawing_options() -> None:
    assert "there is no algorithm 'star'" in refused("schedule", "star")
    assert "servers is 5" in refused("schedule", "parameter_server", "--servers", "5")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("64KiB", 65536), ("1.5 MB", 1.5e6), ("2e3kB", 2e6), ("1GiB", 2**30)],
)
def test_sizes(text: str, value: float) -> None:
    assert quantities.size(text, "--sizes") == value


@pytest.mark.parametrize(
    ("text", "value"), [("100Gbit/s", 12.5e9), ("8bit/s", 1), ("2MiB/s", 2**21), ("3KB/s", 3000)]
)
def test_bandwidths(text: str, value: float) -> None:
    assert quantities.bandwidth(text, "--link") == value
