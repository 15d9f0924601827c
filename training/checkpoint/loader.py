"""Loading the newest good checkpoint, on all ranks the same."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from trainhall.training.checkpoint.difference import first_difference
from trainhall.training.checkpoint.format.errors import (
    BadCheckpointError,
    CheckpointError,
    NewerFormatError,
    NoGoodCheckpointError,
    PassedOver,
    SkipReason,
    StateMismatchError,
    UnreadableCheckpointError,
)
from trainhall.training.checkpoint.format.manifest import (
    FileRecord,
    Manifest,
    describe,
    divide,
    encode_manifest,
    read_manifest,
    verify_files,
)
from trainhall.training.checkpoint.format.names import parse_name
from trainhall.training.checkpoint.index import Index
from trainhall.training.checkpoint.ranks import Location, Ranks, location_of
from trainhall.training.checkpoint.state import EXTRA, FlatState, flatten, from_json, put_values
from trainhall.training.checkpoint.storage import SafetensorsReader
from trainhall.training.event_log import EventLogger

log = EventLogger(__name__)

State = dict[str, Any]
"""Nested dicts and lists of tensors and plain values, by part."""
StateOrFactory = State | Callable[[Manifest, Index], State]
"""A state to fill, or a function that makes one for a good candidate."""


@dataclass(frozen=True)
class Loaded:
    """The result of loading, beside the tensors."""

    step: int
    name: str
    extra: dict[str, Any]
    notes: list[PassedOver]
    """Why better candidates were not taken; empty if the first one was good."""
    manifest: Manifest


@dataclass(frozen=True)
class _Failure:
    """The reason that a candidate cannot be loaded."""

    reason: SkipReason
    text: str


class _NotACheckpointError(CheckpointError):
    """A candidate that is none."""


@dataclass(frozen=True)
class _Candidates:
    """The candidates of all ranks.

    Hosts without shared storage may have been given different names (one of them could not fetch
    the newest): only those that all ranks have are tried.
    """

    names: list[list[str]]
    """Candidates by rank, best first."""
    lacking: list[dict[str, str]]
    """By rank: better checkpoints that are not among its candidates, and why."""

    def in_order(self) -> list[str]:
        """Return every rank's candidates, each once, best first; where ranks differ, rank 0's order
        holds."""
        merged = list(self.names[0])
        for names in self.names[1:]:
            before = len(merged)
            for name in reversed(names):
                if name in merged:
                    before = merged.index(name)
                else:
                    merged.insert(before, name)
        return merged

    def lacking_everywhere(self) -> list[PassedOver]:
        """Return the better checkpoints that are no rank's candidate."""
        known = {name for names in self.names for name in names}
        reasons = {
            n: why for by_name in self.lacking for n, why in by_name.items() if n not in known
        }
        return [
            PassedOver(name, SkipReason.MISSING, f"no host has a good copy: {why}")
            for name, why in reasons.items()
        ]

    def missing(self, name: str) -> PassedOver | None:
        """Return why some rank cannot load a candidate; None if all ranks have it."""
        without = [rank for rank, names in enumerate(self.names) if name not in names]
        if not without:
            return None
        text = f"rank {without[0]} does not have it"
        reasons = (self.lacking[rank].get(name) for rank in without)
        text += next((f": {why}" for why in reasons if why), "")
        return PassedOver(name, SkipReason.MISSING, text)


class CheckpointLoader:
    """One rank's side of loading; all ranks call the same methods in the same order."""

    def __init__(self, folder: Path, ranks: Ranks, *, replicated: bool) -> None:
        self._folder = folder
        self._ranks = ranks
        self._replicated = replicated
        self._locations: list[Location] = [location_of(folder)] * ranks.size
        """By rank: the storage through which it sees its folder."""

    def load(
        self,
        names: Sequence[str],
        state: StateOrFactory,
        *,
        lacking: Mapping[str, str],
        optional: str | None,
    ) -> Loaded | None:
        """Load the first good checkpoint among `names`; see `Checkpointer.load`."""
        gathered = self._ranks.gather((list(names), dict(lacking), location_of(self._folder)))
        self._locations = [location for _, _, location in gathered]
        candidates = _Candidates([own for own, _, _ in gathered], [own for _, own, _ in gathered])
        notes = candidates.lacking_everywhere()
        for name in candidates.in_order():
            note = candidates.missing(name)
            if note is None:
                outcome = self._load_candidate(name, state, optional)
                if isinstance(outcome, Loaded):
                    for each in notes if self._ranks.rank == 0 else ():
                        log.warning("checkpoint_skipped", checkpoint=each.name, reason=each.text)
                    return replace(outcome, notes=notes)
                note = PassedOver(name, outcome.reason, outcome.text)
            notes.append(note)
        if not notes:
            return None
        reasons = {note.reason for note in notes}
        if SkipReason.UNREADABLE in reasons or reasons <= {SkipReason.GONE}:
            raise UnreadableCheckpointError(notes, self._folder)
        raise NoGoodCheckpointError(notes)

    def _load_candidate(
        self, name: str, state: StateOrFactory, optional: str | None
    ) -> "Loaded | _Failure":
        """Fill the state from one candidate, or return what is wrong with it.

        Raises:
            StateMismatchError: it is good, and does not fit.
        """
        opened = self._open(name)
        if isinstance(opened, _Failure):
            return opened
        manifest, reader = opened
        whole = state if isinstance(state, dict) else state(manifest, reader.index)
        target = {key: part for key, part in whole.items() if key != EXTRA}
        flat = flatten(target)
        self._refuse_mismatch(name, flat, reader.index, optional)
        if failure := self._agreed(lambda: reader.read(flat.tensors)):
            return failure
        put_values(target, reader.index.values_of(self._ranks.rank))
        whole.update(target)
        return Loaded(manifest.step, name, from_json(manifest.extra), [], manifest)

    def _open(self, name: str) -> "tuple[Manifest, SafetensorsReader] | _Failure":
        """Return a candidate that is good on all ranks, or what is wrong with it."""
        folder = self._folder / name
        seen: list[Manifest] = []
        opened: list[SafetensorsReader] = []

        def verify() -> None:
            if parse_name(name) is None:
                raise _NotACheckpointError("it is not named like a checkpoint")
            manifest = read_manifest(folder)
            if problems := verify_files(folder, self._share(manifest.files)):
                raise BadCheckpointError(problems)
            seen.append(manifest)

        if why := self._agreed(verify):
            return why
        # Only now is every file verified: what a rank did not hash, another one of its host did.
        digest = hashlib.sha256(encode_manifest(seen[0])).hexdigest()
        if len(set(self._ranks.gather(digest))) > 1:
            text = "the ranks see different checkpoints under this name"
            return _Failure(SkipReason.DISAGREEMENT, text)
        if why := self._agreed(lambda: opened.append(SafetensorsReader(folder, seen[0]))):
            return why
        return seen[0], opened[0]

    def _share(self, files: Sequence[FileRecord]) -> list[FileRecord]:
        """Return the files that this rank hashes: the ranks of a location divide the bytes as
        evenly as files allow."""
        here = self._locations[self._ranks.rank]
        ranks = [rank for rank, location in enumerate(self._locations) if location == here]
        return divide(files, len(ranks))[ranks.index(self._ranks.rank)]

    def _agreed(self, action: Callable[[], None]) -> "_Failure | None":
        """Run an action on all ranks; return what failed on any of them, or None."""
        failure: _Failure | None = None
        try:
            action()
        except OSError as error:
            failure = _Failure(SkipReason.UNREADABLE, describe(error))
        except (CheckpointError, SafetensorError) as error:
            failure = _Failure(_reason_of(error), str(error))
        return self._common_failure(self._ranks.gather(failure))

    def _common_failure(self, failures: "Sequence[_Failure | None]") -> "_Failure | None":
        """Return one failure for those of the ranks, by rank."""
        # What one rank finds wrong with a folder is wrong for all that read the same one.
        wrong = {p: why for p, why in zip(self._locations, failures, strict=True) if why}
        failures = [why or wrong.get(p) for p, why in zip(self._locations, failures, strict=True)]
        reported = {why: rank for rank, why in reversed(list(enumerate(failures))) if why}
        if not reported:
            return None
        first, *_ = reversed(reported)
        if len(reported) == 1 and all(failures):
            # Alike on hosts that share the storage: it is not one of them that does not see it.
            return (
                _Failure(SkipReason.GONE, first.text)
                if first.reason is SkipReason.MISSING
                else first
            )
        damaged = any(why.reason is SkipReason.DAMAGED for why in reported)
        text = "; ".join(f"on rank {rank}: {why.text}" for why, rank in reversed(reported.items()))
        return _Failure(SkipReason.DAMAGED if damaged else first.reason, text)

    def _refuse_mismatch(
        self, name: str, flat: FlatState, index: Index, optional: str | None
    ) -> None:
        saved = index.metadata.state_dict_metadata
        elsewhere = {each for each in saved if each.split("/")[0] == optional}
        if not self._replicated:
            elsewhere.update(*self._ranks.gather(list(flat.tensors)))
        found = first_difference(flat, index, self._ranks.rank, elsewhere)
        for rank, difference in enumerate(self._ranks.gather(found)):
            if difference is not None:
                where = f" (rank {rank})" if self._ranks.size > 1 else ""
                raise StateMismatchError(f"{name} does not fit{where}: {difference}")


def _reason_of(error: CheckpointError | SafetensorError) -> SkipReason:
    match error:
        case _NotACheckpointError() | NewerFormatError():
            return SkipReason.MISMATCH
        case BadCheckpointError() if all(problem.path == "." for problem in error.problems):
            return SkipReason.MISSING
        case BadCheckpointError() if not any(problem.is_damage for problem in error.problems):
            return SkipReason.UNREADABLE
    return SkipReason.DAMAGED
