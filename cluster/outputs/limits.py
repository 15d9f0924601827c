"""Limits of the files that jobs write, and why a file is not stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.wire.outputs import Skipped
from trainhall.training.common.units import size_text

MAX_FILES = 100_000
"""Most files of a job, the hosts' files of one name counted each."""


@dataclass(frozen=True)
class OutputLimits:
    file_bytes: int
    job_bytes: int
    is_own: bool
    """The job's limit is that of its spec."""

    @classmethod
    def of(cls, options: ClusterOptions, spec: Mapping[str, Any]) -> Self:
        """Return the limits of a job with this spec."""
        job = options.output_bytes_per_job
        own: int = (spec.get("outputs") or {}).get("max_bytes") or job
        return cls(options.output_file_bytes, min(own, job), own < job)

    def describe(self, file: Skipped) -> str:
        """Return the sentence about a file that is not stored."""
        what = f"output {file.path} ({size_text(file.size)}) was not stored: "
        match file.why:
            case "file_limit":
                return (
                    f"{what}a file may have {size_text(self.file_bytes)} (the server's "
                    "output_file_bytes); write several, or exclude it in outputs.exclude"
                )
            case "job_limit":
                setting = (
                    "outputs.max_bytes" if self.is_own else "the server's output_bytes_per_job"
                )
                return (
                    f"{what}the files of a job may have {size_text(self.job_bytes)} together "
                    f"({setting}); delete files that are not needed, or exclude them"
                )
            case "files_limit":
                return (
                    f"{what}a job may have {MAX_FILES:,} files; pack them, or exclude some in "
                    "outputs.exclude"
                )
            case "name":
                return f"{what}its name is too long"
            case "link":
                return f"{what}it is a link that leads out of the job's folder"
            case "unreadable":
                return f"{what}it cannot be read"
            case "changing":
                return f"{what}it was still being changed after the end of the job's ranks"
