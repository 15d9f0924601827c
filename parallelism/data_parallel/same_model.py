"""Check that all ranks hold the same model, before anything of it is combined."""

from itertools import chain

from torch import nn

from trainhall.distributed import breakable, process_group


class ModelMismatchError(RuntimeError):
    """Ranks hold parameters of other shapes or types than others."""


def check_same_parameters(model: nn.Module) -> None:
    """See that all ranks of the default process group bring the same parameters. A collective.

    DDP checks too, but reports it on all ranks but the first, which then waits for the others.

    Raises:
        ModelMismatchError: on every rank, with the first parameter that differs and what each has.
    """
    own = {name: f"{list(p.shape)} of {p.dtype}" for name, p in model.named_parameters()}
    all_ = breakable.gather_objects(own, process_group.cpu_group())
    for name in dict.fromkeys(chain(*all_)):
        holders: dict[str, list[str]] = {}
        for rank, parameters in enumerate(all_):
            holders.setdefault(parameters.get(name, "absent"), []).append(str(rank))
        if len(holders) > 1:
            differences = ", and ".join(
                f"{what} on rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}"
                for what, ranks in holders.items()
            )
            raise ModelMismatchError(
                f"ranks hold different models: parameter {name} is {differences}; all nodes "
                "need the same code and data"
            )
