"""The record of a step's gradients; free of torch."""

import json
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainhall.documented import Documented

MAX_GRADIENTS = 1024
"""Entries of a `GradientRecord`: a model with more parameters reports them by module."""
LOWEST_EXPONENT = -48
"""Exponent of a histogram's lowest bin: numbers below 2 to this power count with it."""
HISTOGRAM_BINS = 64
_MOST = 2**63 - 1
"""The largest integer that databases and JSON keep."""
Count = Annotated[int, Field(ge=0, le=_MOST)]


class Histogram(Documented, BaseModel):
    """A histogram of the magnitudes of a gradient's numbers.

    Bin i counts the numbers from 2^(`LOWEST_EXPONENT` + i) to below twice that; those beyond the
    first and the last bin count with these.
    """

    first: Annotated[int, Field(ge=0, lt=HISTOGRAM_BINS)] = 0
    """The first bin in `counts`; bins before and after `counts` are empty."""
    counts: Annotated[list[Count], Field(max_length=HISTOGRAM_BINS)] = []
    zeros: Count = 0
    not_finite: Count = 0


class GradientRecord(Documented, BaseModel):
    """The gradient of one step by parameter, averaged over the ranks, before it was clipped."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    step: Annotated[int, Field(ge=1, le=_MOST)]
    request: Count = 0
    """Number of the user's request that it answers; 0: the job's spec wants it."""
    names: Annotated[list[str], Field(max_length=MAX_GRADIENTS)]
    """Names of parameters, in the order of the model; of modules, where there are too many."""
    norms: list[float]
    """L2 norms of the averaged gradients: their squares add up to the square of `gradient_norm`."""
    largest: list[float]
    """The largest L2 norm that any rank had accumulated by itself, before averaging."""
    histograms: list[Histogram] | None = None
    """Histograms by entry, in requested records only."""

    @model_validator(mode="after")
    def _same_length(self) -> Self:
        lengths = {len(self.norms), len(self.largest), len(self.names)}
        if self.histograms is not None:
            lengths.add(len(self.histograms))
        if len(lengths) > 1:
            raise ValueError("norms, largest and histograms must be as long as names")
        return self

    def as_json(self) -> dict[str, Any]:
        """Return the record as it is sent: NaN and infinities are strings."""
        encoded: dict[str, Any] = json.loads(self.model_dump_json(exclude_none=True))
        return encoded
