"""`trainhall bench`: how fast a job trains, what collectives cost, and how they go."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhall.cli.base import output as out
from trainhall.cli.base import quantities
from trainhall.cli.base.errors import CliError, UsageError
from trainhall.cli.base.extra import check_installed
from trainhall.cli.base.options import Report, ReportFormat
from trainhall.cli.base.plots import check_plot
from trainhall.cli.bench import job
from trainhall.cli.bench.job import BenchGroup
from trainhall.training.common.units import brief

if TYPE_CHECKING:
    from trainhall.cli.bench.forecast import Forecast
    from trainhall.distributed.bench.request import Scenario
    from trainhall.distributed.collectives.cost import Cluster, Link, LinkClass

MOST_RANKS = 4096
SIMULATED = "2,8,24,96,512,4096"
FORECAST = "1KiB,64KiB,1MiB,32MiB,1GiB"
MOST_MEASURED = 16
MOST_BYTES = 256 << 20
MEASURED = "4KiB,64KiB,256KiB,1MiB,4MiB,16MiB"
MOST_DRAWN = 16
"""Ranks of a drawing that a person can still read."""

app = typer.Typer(
    cls=BenchGroup,
    help="Benchmark a job or collectives on this host, and show the schedules of collectives.",
    epilog="A first argument that is no command is the FILE of `job`.",
    no_args_is_help=True,
)
app.command("job")(job.job)

Servers = Annotated[
    int | None,
    typer.Option(
        "--servers", min=1, help="Number of server ranks, for parameter_server.",
        show_default="one per host",
    ),
]  # fmt: skip
DevicesPerHost = Annotated[int, typer.Option("--devices-per-host", min=1, help="Devices per host.")]


@app.command("collectives")
def collectives(
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Compute the times from a model of the links.")
    ] = False,
    ranks: Annotated[
        str | None,
        typer.Option(
            "--ranks",
            metavar="N,N…",
            help="Numbers of ranks: up to 16 on loopback, up to 4,096 with --simulate.",
            show_default="2,4; with --simulate 2,8,24,96,512,4096",
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            "--sizes",
            metavar="SIZE,SIZE…",
            help="Tensor sizes.",
            show_default="4KiB to 16MiB; with --simulate 1KiB to 1GiB",
        ),
    ] = None,
    limits: Annotated[
        str | None,
        typer.Option(
            "--limits",
            metavar="RATE,RATE…",
            help="Also measure two hosts with two ranks each, on links limited to these "
            "rates, such as 100Mbit/s (Linux, as root).",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FOLDER", help="Write a report with plots."),
    ] = None,
    algorithms: Annotated[
        str | None,
        typer.Option(
            "--algorithms", metavar="NAME,NAME…", help="Algorithms to compare.", show_default="all"
        ),
    ] = None,
    ranks_per_device: Annotated[
        int, typer.Option("--ranks-per-device", min=1, help="Ranks that share a device.")
    ] = 1,
    devices_per_host: DevicesPerHost = 8,
    hosts_per_rack: Annotated[
        int, typer.Option("--hosts-per-rack", min=1, help="Hosts per rack.")
    ] = 8,
    link: Annotated[
        list[str] | None,
        typer.Option(
            "--link",
            metavar="CLASS=LATENCY,BANDWIDTH",
            help="Latency and bandwidth within a device, a host or a rack, or between racks: "
            "rack=10us,100Gbit/s. May be repeated.",
            show_default="those of a GPU cluster",
        ),
    ] = None,
    servers: Servers = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Also plot the curves (PNG, SVG or PDF)."),
    ] = None,
    form: Report = ReportFormat.TABLE,
) -> None:
    """Compare all-reduce algorithms, measured or simulated.

    Measures native all-reduce, the schedules, and a ResNet-18's gradients with and without
    compression between processes on loopback, beside the cost model's prediction. With --limits,
    network namespaces form two hosts joined by such links.

    With --simulate it computes for thousands of ranks from which size another algorithm is fastest.
    Ranks fill devices, hosts and racks in order and share their host's bandwidth to others.

    \b
    Examples:
      trainhall bench collectives
      trainhall bench collectives --limits 100Mbit/s,1Gbit/s --report results
      trainhall bench collectives --simulate --ranks 2,16,128 --plot times.png
      trainhall bench collectives --simulate --devices-per-host 2 --link rack=50us,1Gbit/s
    """
    from trainhall.distributed.collectives.cost import EXAMPLE_LINKS, Cluster

    if not simulate:
        modelled = {
            "--algorithms": algorithms, "--link": link, "--servers": servers, "--plot": plot,
            "--ranks-per-device": ranks_per_device != 1,
            "--devices-per-host": devices_per_host != 8, "--hosts-per-rack": hosts_per_rack != 8,
        }  # fmt: skip
        if given := [name for name, value in modelled.items() if value]:
            raise UsageError(f"{given[0]} needs --simulate; without it, times are measured")
        _measure(ranks, sizes, limits, report, form)
        return
    for name, value in (("--limits", limits), ("--report", report)):
        if value:
            raise UsageError(f"{name} is for measured times; leave out --simulate")
    if plot:
        check_plot(plot)
    cluster = Cluster(
        world_size=MOST_RANKS,
        ranks_per_device=ranks_per_device,
        devices_per_host=devices_per_host,
        hosts_per_rack=hosts_per_rack,
        links=EXAMPLE_LINKS | dict(map(_link, link or [])),
    )
    found = _forecast(ranks, sizes, algorithms, servers, cluster)
    if form is ReportFormat.TABLE:
        print(_tables(found))
    else:
        print(out.rendered(found.document(), form))
    if plot:
        from trainhall.cli.bench.plot import draw

        draw(plot, found)
        out.notice(f"Wrote {plot}.")


def _forecast(
    ranks: str | None,
    sizes: str | None,
    algorithms: str | None,
    servers: int | None,
    cluster: "Cluster",
) -> "Forecast":
    from trainhall.cli.bench.forecast import forecast
    from trainhall.distributed.collectives.algorithms.registry import NAMES
    from trainhall.distributed.collectives.errors import ScheduleError

    counts = [
        quantities.integer(n, "--ranks", least=2, most=MOST_RANKS)
        for n in _items(ranks or SIMULATED)
    ]
    names = _items(algorithms) if algorithms else list(NAMES)
    if unknown := [name for name in names if name not in NAMES]:
        raise UsageError(f"there is no algorithm {unknown[0]!r}; known: {', '.join(NAMES)}")
    try:
        return forecast(
            ranks=sorted(set(counts)),
            sizes=sorted({quantities.size(text, "--sizes") for text in _items(sizes or FORECAST)}),
            algorithms=list(dict.fromkeys(names)),
            cluster=cluster,
            servers=servers,
        )
    except ScheduleError as error:
        raise UsageError(str(error)) from None


@app.command("schedule")
def schedule(
    algorithm: Annotated[
        str, typer.Argument(metavar="ALGORITHM", help="Name of an algorithm, such as ring.")
    ],
    ranks: Annotated[int, typer.Option("--ranks", min=1, max=MOST_DRAWN, help="Ranks.")] = 4,
    devices_per_host: DevicesPerHost = 8,
    servers: Servers = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Also draw it to an SVG file.")
    ] = None,
) -> None:
    """Show what each rank sends and receives in an all-reduce.

    `3→1` sends chunk 3 to rank 1, `+2←0` adds chunk 2 from rank 0 to the rank's own, and `2←0`
    replaces its own. In the picture, darker chunks sum more ranks.

    \b
    Examples:
      trainhall bench schedule ring
      trainhall bench schedule hierarchical --ranks 8 --devices-per-host 4 --svg hierarchical.svg
    """
    from trainhall.distributed.collectives import draw
    from trainhall.distributed.collectives.algorithms.registry import all_reduce
    from trainhall.distributed.collectives.cost import Cluster
    from trainhall.distributed.collectives.errors import ScheduleError

    hosts = Cluster(world_size=ranks, devices_per_host=devices_per_host).hosts
    try:
        drawn = all_reduce(algorithm, ranks, hosts=hosts, servers=servers)
    except ScheduleError as error:
        raise UsageError(str(error)) from None
    print(draw.text(drawn))
    if svg:
        try:
            svg.write_text(draw.svg(drawn), encoding="utf-8")
        except OSError as error:
            raise CliError(f"cannot write {svg}: {error.strerror}") from None
        out.notice(f"Wrote {svg}.")


def _measure(
    ranks: str | None,
    sizes: str | None,
    limits: str | None,
    report: Path | None,
    form: ReportFormat,
) -> None:
    """Measure on loopback, and between hosts whose links are limited."""
    check_installed("torch", "bench collectives")
    if report:
        _make_folder(report)
    from trainhall.cli.bench import report as bench_report
    from trainhall.cli.bench.measure import measure
    from trainhall.distributed.bench.hosts import NetworkNotAllowedError, check_allowed

    scenarios = _scenarios(ranks or "2,4", sizes or MEASURED, limits)
    measured = []
    try:
        if limits:
            check_allowed()
        for scenario in scenarios:
            out.notice(f"Measuring {scenario.name} …")
            measured.append(measure(scenario))
            if form is ReportFormat.TABLE:
                print(bench_report.tables(measured[-1]) + "\n", flush=True)
    except NetworkNotAllowedError as error:
        raise CliError(str(error)) from None
    if form is ReportFormat.TABLE:
        for goal in bench_report.goals(measured):
            print(f"{goal.name}: {goal}")
    else:
        print(out.rendered(bench_report.document(measured), form))
    if report:
        out.notice(f"Wrote {bench_report.write(report, measured)}.")


def _make_folder(report: Path) -> None:
    """Make the folder of a report, before measuring takes minutes."""
    check_installed("matplotlib", "--report")
    if report.exists() and not report.is_dir():
        raise UsageError(f"--report takes a folder, and {report} is a file")
    try:
        report.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--report cannot write to {report}: {error.strerror}") from None


def _scenarios(ranks: str, sizes: str, limits: str | None) -> "list[Scenario]":
    from trainhall.distributed.bench.request import Scenario

    counts = {quantities.integer(n, "--ranks", least=2, most=MOST_MEASURED) for n in _items(ranks)}
    asked = tuple(sorted({_elements(text) for text in _items(sizes)}))
    found = [Scenario(f"loopback, {n} ranks", (tuple(range(n)),), asked) for n in sorted(counts)]
    for text in _items(limits) if limits else []:
        rate = quantities.bandwidth(text, "--limits")
        # A link is to carry a tensor in half a second: there are many rounds.
        quick = tuple(size for size in asked if size <= rate / 2) or asked[:1]
        found.append(Scenario(f"2 × 2 ranks, {text}", ((0, 1), (2, 3)), quick, 8 * rate))
    return found


def _elements(text: str) -> int:
    """Return bytes of a tensor of floats."""
    size = quantities.size(text, "--sizes")
    if size % 4 or size > MOST_BYTES:
        raise UsageError(f"--sizes takes multiples of 4 bytes, up to 256MiB, not {text!r}")
    return int(size)


def _tables(found: "Forecast") -> str:
    """Draw times, and where the fastest changes."""
    rows: list[dict[str, Any]] = []
    for ranks, of_size in found.asked():
        for size, seconds in of_size.items():
            fastest = min(seconds, key=seconds.__getitem__)
            rows.append({"ranks": ranks, "size": size, "fastest": fastest, "seconds": seconds})
    columns = [
        out.Column("RANKS", lambda row: f"{row['ranks']:,}", right=True),
        out.Column("SIZE", lambda row: out.size(row["size"]), right=True),
        *(_times(name) for name in found.algorithms),
        out.Column("FASTEST", lambda row: str(row["fastest"])),
    ]
    crossings = [
        out.Column("RANKS", lambda row: f"{row['ranks']:,}", right=True),
        out.Column("CROSSOVER", lambda row: out.size(row["size"]), right=True),
        out.Column("BELOW", lambda row: str(row["below"])),
        out.Column("ABOVE", lambda row: str(row["above"])),
    ]
    text = out.table(rows, columns)
    crossovers = found.document()["crossovers"]
    return f"{text}\n\n{out.table(crossovers, crossings)}" if crossovers else text


def _times(name: str) -> out.Column:
    return out.Column(name.upper(), lambda row: brief(row["seconds"][name]), right=True)


def _link(text: str) -> "tuple[LinkClass, Link]":
    from trainhall.distributed.collectives.cost import Link, LinkClass

    kind, equals, values = text.partition("=")
    latency, comma, bandwidth = values.partition(",")
    if not equals or not comma or kind not in list(LinkClass):
        raise UsageError(
            f"--link takes CLASS=LATENCY,BANDWIDTH, as in rack=10us,100Gbit/s, not {text!r}; the "
            f"classes are {', '.join(LinkClass)}"
        )
    return LinkClass(kind), Link(
        quantities.latency(latency, "--link"), quantities.bandwidth(bandwidth, "--link")
    )


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")]
