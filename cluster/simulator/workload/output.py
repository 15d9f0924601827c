"""Output of simulated ranks, worded like the console of the training loop."""

import random
from collections.abc import Mapping, Sequence

RED, YELLOW, GREEN, CYAN, DIM, BOLD, RESET = (
    "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[36m", "\x1b[2m", "\x1b[1m", "\x1b[0m",
)  # fmt: skip


Frame = tuple[str, int, str, str]
"""Path, line, function and source of a frame of a traceback."""
LOOP: tuple[Frame, ...] = (
    ("training/loop/loop.py", 131, "run", "code = self.advance()"),
    ("training/loop/loop.py", 139, "advance", "self.train_step()"),
    (
        "training/loop/loop.py",
        215,
        "train_step",
        "loss, metrics = self.task.loss(self.model, batch)",
    ),
)


def started(
    job: str, *, world_size: int, samples: int, parameters: int, total: int, step: int
) -> str:
    ranks = "1 rank" if world_size == 1 else f"{world_size} ranks"
    begun = f", resuming from step {step}" if step else ""
    return (
        f"{job} on {ranks} (cuda:0): {samples:,} samples, {parameters:,} parameters, "
        f"{total:,} steps{begun}"
    )


def progress(step: int, total: int, metrics: Mapping[str, float]) -> str:
    return step_line(step, total, {"loss": metrics["loss"]}) + (
        f"  {metrics['samples_per_second']:,.0f} samples/s"
    )


def step_line(step: int, total: int, metrics: Mapping[str, float]) -> str:
    shown = "".join(f"  {name} {value:.4g}" for name, value in metrics.items())
    return f"step {step}/{total}{shown}"


def warning(rank: int, host: str, chance: random.Random) -> str:
    """Return a library's warning at the start of a rank."""
    text = chance.choice((
        "UserWarning: the number of data loader workers is above the number of cores of a rank",
        "FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated",
        "NCCL INFO NET/Plugin: no plugin found, using the internal network",
        f"NCCL INFO cudaDriverVersion 12080, {host} mlx5_0:1/IB mlx5_1:1/IB",
    ))  # fmt: skip
    return f"{DIM}[rank{rank}]:{RESET} {YELLOW}{text}{RESET}"


def traceback(rank: int, frames: Sequence[Frame], kind: str, message: str) -> str:
    """Return a Python traceback, coloured as Python 3.13 colours it."""
    magenta, bright = "\x1b[35m", "\x1b[1;35m"
    lines = ["Traceback (most recent call last):"]
    for path, number, name, text in frames:
        lines.append(f'  File {magenta}"{path}"{RESET}, line {magenta}{number}{RESET}, '
                     f"in {magenta}{name}{RESET}")  # fmt: skip
        lines.append(f"    {text}")
    lines.append(f"{bright}{kind}{RESET}: {magenta}{message}{RESET}")
    return "\n".join(f"[rank{rank}]: {line}" for line in lines)


def script_lines(rank: int, step: int, total: int, loss: float, chance: random.Random) -> list[str]:
    """Return a script's own progress output."""
    if rank:
        return [f"[rank {rank}] batch {step}: {chance.uniform(180, 260):.0f} ms"]
    done = round(20 * step / total)
    bar = f"{GREEN}{'━' * done}{RESET}{DIM}{'━' * (20 - done)}{RESET}"
    lines = [
        f"{CYAN}epoch {1 + 4 * (step - 1) // total}{RESET} {bar} {step}/{total}  loss={loss:.4f}"
    ]
    if chance.random() < 0.08:
        lines.append(f"{YELLOW}warning:{RESET} skipped 1 sample that could not be decoded")
    return lines
