"""Requests about jobs, and the response to a dry run."""

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt

from trainhall.api.schemas.base import Body
from trainhall.cluster.jobs.listing.keys import GroupKey
from trainhall.cluster.jobs.listing.query import MAX_QUERY
from trainhall.cluster.jobs.listing.saved_views import ListView
from trainhall.cluster.lifecycle.states import JobState
from trainhall.cluster.scheduling.views import Outlook
from trainhall.db.views import JsonObject, View
from trainhall.training.link.profiling.messages import MAX_RANKS, MAX_STEPS
from trainhall.training.spec.base import Notes, Tag, Tags

ViewName = Annotated[str, Field(max_length=64, pattern=r"^[^\W_][^/\x00-\x1f\x7f]*$")]
ColumnName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")]


class DryRun(View):
    """Result of a submission that creates nothing."""

    name: str
    world_size: int
    priority: int
    spec: JsonObject
    """The job spec with its defaults."""
    code_missing: bool
    """The code that it names has to be uploaded first."""
    shortage: str | None
    """Why the cluster as it is could not hold the job, were it the only one."""
    outlook: Outlook
    warnings: list[str]
    """Advice on the spec, such as values that belong into secrets."""


class Resize(Body):
    """The number of workers that a job shall have: `workers`, or the other two."""

    workers: StrictInt | None = None
    """A fixed number."""
    min_workers: StrictInt | None = None
    """Minimum of an elastic job. If omitted, it stays; 1 for a job that had a fixed number."""
    max_workers: StrictInt | None = None
    """Maximum of an elastic job. If omitted, it stays."""


class NewProfile(Body):
    """Profile of a running job's next steps."""

    steps: Annotated[StrictInt, Field(ge=1, le=MAX_STEPS)] = 20
    """Number of steps."""
    ranks: Annotated[list[StrictInt], Field(min_length=1, max_length=MAX_RANKS)] | None = None
    """Ranks to profile; null: all."""
    stacks: StrictBool = False
    """Record the Python calls, too; steps take longer."""
    memory: StrictBool = False
    """Record allocations of tensors, too."""


class JobEdit(Body):
    """Tags and notes of a job, and whether it is archived; what is left out stays."""

    tags: Tags | None = None
    """All tags it shall have, at most 32."""
    add_tags: list[Tag] | None = None
    """Tags to add to those it has; give these and `remove_tags`, or `tags`."""
    remove_tags: list[str] | None = None
    """Tags to remove, in upper or lower case; those it does not have are ignored."""
    notes: Notes | None = None
    """Markdown of at most 10,000 characters; empty removes the notes."""
    archived: StrictBool | None = None
    """True: lists leave the job out unless their query has `archived:yes`; false: they show it
    again. Only a job that has ended can be archived."""


class NewView(Body):
    """View of the list of jobs to save."""

    name: ViewName
    """Letters, digits and most other characters but `/`, at most 64."""
    state: list[JobState] = Field(default_factory=list)
    """Only jobs in one of these states."""
    search: Annotated[str, Field(max_length=256)] = ""
    """Part of the name, or the beginning of the id."""
    query: Annotated[str, Field(max_length=MAX_QUERY)] = ""
    """Terms that all must match."""
    sort: Annotated[str, Field(max_length=256)] = ""
    """Sort key; empty: the newest first."""
    columns: Annotated[list[ColumnName], Field(max_length=40)] = Field(default_factory=list)
    """Names of fields, `parameters.NAME`, `metrics.NAME`, `metrics.NAME.min` or `.max`; empty: the
    default ones."""
    pinned: Annotated[StrictInt, Field(ge=0, le=40)] = 0
    """So many of the first columns stay while the others scroll."""
    group: GroupKey | None = None
    """Field by whose values the jobs are counted; null: each is listed."""

    def view(self) -> ListView:
        return ListView(**self.model_dump(exclude={"name"}))


class Changes(Body):
    """Changes to a job that resumes; everything is optional."""

    resources: JsonObject | None = None
    """Keys of the job spec's `resources` to replace, such as `{"workers": 4}`."""
    parallelism: JsonObject | None = None
    """Keys of the job spec's `parallelism` to replace."""
