"""Requests about jobs, and the response to a dry run."""

from pydantic import StrictInt

from trainhall.api.schemas.base import Body
from trainhall.cluster.scheduling.views import Outlook
from trainhall.db.views import JsonObject, View
from trainhall.training.spec.base import Notes, Tag, Tags


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


class Resize(Body):
    """The number of workers that a job shall have: `workers`, or the other two."""

    workers: StrictInt | None = None
    """A fixed number."""
    min_workers: StrictInt | None = None
    """Minimum of an elastic job. If omitted, it stays; 1 for a job that had a fixed number."""
    max_workers: StrictInt | None = None
    """Maximum of an elastic job. If omitted, it stays."""


class JobEdit(Body):
    """Tags and notes of a job; what is left out stays."""

    tags: Tags | None = None
    """All tags it shall have, at most 32."""
    add_tags: list[Tag] | None = None
    """Tags to add to those it has; give these and `remove_tags`, or `tags`."""
    remove_tags: list[str] | None = None
    """Tags to remove, in upper or lower case; those it does not have are ignored."""
    notes: Notes | None = None
    """Markdown of at most 10,000 characters; empty removes the notes."""


class Changes(Body):
    """Changes to a job that resumes; everything is optional."""

    resources: JsonObject | None = None
    """Keys of the job spec's `resources` to replace, such as `{"workers": 4}`."""
    parallelism: JsonObject | None = None
    """Keys of the job spec's `parallelism` to replace."""
