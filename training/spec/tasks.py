"""The built-in tasks and their parameters, without torch: a typo fails at submission."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class TaskParams(BaseModel):
    """Base of every task's parameters: unknown keys are errors, values are finite and immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DigitsParams(TaskParams):
    """An MLP on the handwritten digits that scikit-learn carries: 1,797 images of 8×8 pixels.

    The data are E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits" (UCI, 1998).
    """

    hidden: Annotated[
        list[Annotated[int, Field(ge=1, le=65536)]],
        Field(max_length=16, description="Width of each hidden layer."),
    ] = [256]
    dropout: Annotated[float, Field(ge=0, lt=1, description="Dropout after each hidden layer.")] = (
        0.0
    )
    eval_fraction: Annotated[
        float, Field(gt=0, lt=1, description="Share of the images held out for evaluation.")
    ] = 0.2


class SyntheticParams(TaskParams):
    """An MLP regression on random data: for trials of the cluster, not of learning."""

    samples: Annotated[
        int, Field(ge=1, le=100_000_000, description="Size of the virtual training set.")
    ] = 4096
    features: Annotated[int, Field(ge=1, le=1_048_576, description="Input width.")] = 32
    hidden: Annotated[
        list[Annotated[int, Field(ge=1, le=65536)]],
        Field(max_length=64, description="Width of each hidden layer."),
    ] = [64]
    step_seconds: Annotated[
        float,
        Field(
            ge=0, le=3600, description="Idle time added to each step, to imitate a larger model."
        ),
    ] = 0.0


TASK_PARAMS: dict[str, type[TaskParams]] = {
    "digits": DigitsParams,
    "synthetic": SyntheticParams,
}
