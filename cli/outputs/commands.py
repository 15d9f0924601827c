"""Commands about outputs: ls, get, cat."""

import codecs
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import DEFAULT_URL, Format, JobId, Output, Url

app = typer.Typer(
    help="List, download and print the files that a job has written.", no_args_is_help=True
)
_PATHS_HELP = (
    "Paths as `ls` prints them, folders, or quoted patterns such as '*.png', in which * also "
    "stands for /."
)
Paths = Annotated[
    list[str] | None, typer.Argument(metavar="PATH", help=f"{_PATHS_HELP} Default: all.")
]
Rank = Annotated[
    int | None,
    typer.Option(
        "--rank",
        min=0,
        help="Files of the host whose lowest rank this is. Default: of all hosts; of a path that "
        "several have, the file of the lowest rank.",
    ),
]


@app.command("list", hidden=True)
@app.command("ls")
def list_outputs(
    job: JobId,
    paths: Paths = None,
    rank: Rank = None,
    find: Annotated[
        str | None,
        typer.Option(
            "--find",
            metavar="WORDS",
            help="Only paths with all these words, in any order and case.",
        ),
    ] = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List the files that a job has written, with their sizes.

    `-o name` prints the paths alone. A name that is not one line of text has `\\xNN` in place of
    bytes, and `\\\\` for a backslash.

    \b
    Examples:
      trainhall outputs ls 3f2a
      trainhall outputs ls 3f2a 'outputs/*.csv' -o name
      trainhall outputs ls 3f2a --find "best csv"
    """
    from trainhall.cli.outputs.download import chosen, outputs_of

    with connect(url) as client:
        found = chosen(outputs_of(client, client.job_id(job), rank, find), paths or [])
    if output is Format.NAME:
        found = [{"id": file["path"]} for file in found]
    columns = [
        out.Column("SIZE", lambda f: out.size(f["size"]), right=True),
        out.Column("ATTEMPT", lambda f: str(f["attempt"]), right=True),
        out.Column("RANK", lambda f: str(f["rank"]), right=True),
        out.Column("AGE", lambda f: out.age(f["modified_at"]), right=True),
        out.Column("PATH", lambda f: f["path"]),
    ]
    out.print_items(found, columns, output, empty="No outputs.")


@app.command("get")
def get(
    job: JobId,
    paths: Paths = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", "-d", metavar="FOLDER", help="Folder to write to. Default: the job's id."
        ),
    ] = None,
    rank: Rank = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Download a job's files into a folder.

    Each is compared with its SHA-256. What is there already is not fetched again, and a download
    that was interrupted continues. Nothing is written outside the folder; files of the same name in
    it are replaced.

    \b
    Examples:
      trainhall outputs get 3f2a
      trainhall outputs get 3f2a outputs/media '*.csv' --to results
    """
    from trainhall.cli.outputs.download import chosen, fetch, outputs_of

    with connect(url) as client:
        job_id = client.job_id(job)
        files = chosen(outputs_of(client, job_id, rank), paths or [])
        folder = to or Path(job_id)
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file; choose a folder with --to")
        fetched = [file for file in files if fetch(client, job_id, file, folder, rank)]
    summary = {
        "id": str(folder), "files": len(files), "fetched": len(fetched),
        "size": sum(file["size"] for file in files),
    }  # fmt: skip
    out.print_item(summary, output, lambda: _summary(summary))


def _summary(summary: out.Json) -> str:
    if not summary["files"]:
        return "The job has no outputs."
    there = summary["files"] - summary["fetched"]
    already = f", {there} of them already there" if there else ""
    noun = "file" if summary["files"] == 1 else "files"
    return f"{summary['files']} {noun} ({out.size(summary['size'])}) in {summary['id']}{already}"


@app.command("cat")
def cat(
    job: JobId,
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help=_PATHS_HELP)],
    rank: Rank = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Print files of a job.

    A terminal gets text alone; redirect binary files, or download them with `get`.

    \b
    Examples:
      trainhall outputs cat 3f2a outputs/result.json | jq .accuracy
    """
    from trainhall.cli.outputs.download import chosen, outputs_of, read

    with connect(url) as client:
        job_id = client.job_id(job)
        is_terminal = sys.stdout.isatty()
        for file in chosen(outputs_of(client, job_id, rank), paths):
            pieces = read(client, job_id, file, rank)
            if is_terminal:
                command = f"trainhall outputs get {job_id} {file['path']!r}"
                for text in _text_of(pieces, file["path"], command):
                    print(out.harmless(text), end="")
            else:
                for piece in pieces:
                    sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()


def _text_of(pieces: Iterator[bytes], path: str, command: str) -> Iterator[str]:
    """Yield whole lines, so that no control sequence is cut.

    Raises:
        UsageError: it is no text in UTF-8.
    """
    decoder, rest = codecs.getincrementaldecoder("utf-8")(), ""
    try:
        for piece in pieces:
            rest += decoder.decode(piece)
            if "\0" in rest:
                raise UnicodeError
            end = rest.rfind("\n") + 1
            yield rest[:end]
            rest = rest[end:]
        yield rest + decoder.decode(b"", final=True)
    except UnicodeError:
        raise UsageError(
            f"{path} is not text, so it is not written to a terminal; download it with "
            f"`{command}`, or redirect the output"
        ) from None
