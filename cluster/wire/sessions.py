"""Texts of tunnels (`cluster.wire.tunnel`): what is asked for beside a job, and how it goes.

The user's side begins `exec` with `ExecStart`; the coordinator tells the agent which session of
which attempt a tunnel is for (`ToAgent`), as its first message. Then pass:

    {"type": "resize", "rows": R, "columns": C}         to the host: the terminal's new size
    {"type": "started"}                                 to the user: the command runs, or ports open
    {"type": "stacks", "rank": R, "pid": P, "text": T}  to the coordinator, for each rank
    {"type": "exit", "code": N}                         to the user: the session is over; of a
                                                        signal 128 and its number
    {"type": "error", "detail": D}                      to the user: it cannot be, and why

Streams of `exec`: 0 input, 1 output, 2 error output. A terminal has no error output.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from trainhall.documented import Documented

INPUT, OUTPUT, ERRORS = 0, 1, 2
MAX_ARGUMENTS = 1000
MAX_TEXT = 16 * 1024
TICKET_SECONDS = 15.0
"""Time for an agent to open a tunnel that was asked for."""

Size = Annotated[int, Field(ge=1, le=65535)]
Text = Annotated[str, Field(max_length=MAX_TEXT, pattern=r"^[^\x00]*$")]


class SessionMessage(Documented, BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)


class Terminal(SessionMessage):
    """The user's terminal."""

    rows: Size = 24
    columns: Size = 80
    term: Annotated[str, Field(pattern=r"^[A-Za-z0-9+._-]{1,64}$")] = "xterm-256color"
    """Value of TERM."""


class Resize(SessionMessage):
    """The user's terminal has another size."""

    type: Literal["resize"]
    rows: Size
    columns: Size


class ExecStart(SessionMessage):
    """First message of `exec`."""

    type: Literal["start"]
    command: Annotated[list[Text], Field(max_length=MAX_ARGUMENTS)] = []
    """Program and arguments; none: a shell."""
    terminal: Terminal | None = None
    """None: the streams are pipes."""


class Session(SessionMessage):
    """A session beside an attempt on one of its hosts."""

    job_id: str
    attempt: int


class ExecSession(Session):
    """A command beside a rank."""

    type: Literal["exec"] = "exec"
    rank: int
    command: list[str]
    terminal: Terminal | None


class ForwardSession(Session):
    """Connections to a port of the loopback address that a rank sees."""

    type: Literal["forward"] = "forward"
    rank: int
    port: Annotated[int, Field(ge=1, le=65535)]


class StacksSession(Session):
    """Stacks of ranks of a host."""

    type: Literal["stacks"] = "stacks"
    ranks: list[int]


AnySession = ExecSession | ForwardSession | StacksSession
ToAgent: TypeAdapter[AnySession] = TypeAdapter(
    Annotated[AnySession, Field(discriminator="type")], config=ConfigDict(defer_build=True)
)
