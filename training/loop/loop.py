"""The training loop: one optimizer step after the other, and what is due between them."""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from torch import nn
from torch.optim import Optimizer

from trainhall.distributed import process_group
from trainhall.parallelism import choose
from trainhall.parallelism.pipelining.batches import to_device
from trainhall.parallelism.strategy import Strategy
from trainhall.training.common.random_state import derive_seed, seed_everything
from trainhall.training.common.sample_order import Sampler
from trainhall.training.common.step_clock import Phase, clock_for
from trainhall.training.common.weights_hash import weights_sha256
from trainhall.training.data.batch_reader import Reader
from trainhall.training.data.loader import Loader, Share, Workers, eval_batches
from trainhall.training.gradients.capture import GradientWatch
from trainhall.training.gradients.collect import GradientCapture
from trainhall.training.hash_chain.writer import ChainWriter
from trainhall.training.link.control import Control
from trainhall.training.link.launch import Command
from trainhall.training.link.progress import Activity
from trainhall.training.link.progress_writer import Progress
from trainhall.training.link.status import EXIT_COMPLETED, EXIT_PAUSED, EXIT_STOPPED
from trainhall.training.loop import network_probe
from trainhall.training.loop.checkpoint_schedule import CheckpointSchedule
from trainhall.training.loop.console import Console
from trainhall.training.loop.evaluate import evaluate
from trainhall.training.loop.metrics_recorder import Recorder, peak_memory_bytes
from trainhall.training.loop.mfu import Utilization, peak_of, utilization_of
from trainhall.training.loop.model_checks import refuse_extra_state
from trainhall.training.loop.nonfinite_guard import NonFiniteGuard, NonFiniteLossError
from trainhall.training.loop.oom_report import explain_out_of_memory
from trainhall.training.loop.optimizer_step import OptimizerStep
from trainhall.training.loop.plan_measurement import Measured
from trainhall.training.loop.stragglers import Stragglers, have_equal_work
from trainhall.training.loop.strategy_config import strategy_config_of
from trainhall.training.loop.train_state import TrainingState
from trainhall.training.optim.optimizers import build_optimizer, learning_rate
from trainhall.training.optim.precision import MixedPrecision
from trainhall.training.process.rank_context import RankContext
from trainhall.training.profiling.step_profiles import StepProfiles
from trainhall.training.sync.dataset_check import check_same_data
from trainhall.training.sync.rank0_log import Rank0Log
from trainhall.training.sync.step_sync import StepSync, SyncResult
from trainhall.training.tasks import build_task


class Loop:
    """One rank's training of a built-in task, from the spec to an exit code."""

    def __init__(self, context: RankContext) -> None:
        self.progress = Progress(context.folder.path)
        self.training = context.launch.spec.training
        self.device = context.device
        seed_everything(derive_seed(self.training.seed, "model"))
        self.task = build_task(context.launch.spec)
        self.sampler = Sampler.of(self.training, len(self.task.train_data))
        self.total_steps = self.training.steps or (
            (self.training.epochs or 1) * self.sampler.batches_per_epoch
        )
        self.measured = Measured(self.device)
        self.reader = Reader(self.task, self.task.train_data, self.training.seed)
        self.clock = clock_for(self.device, self.progress.passed)
        self.control = Control(context.folder.control)
        self.profiles = StepProfiles(context.folder, self.control, context.events.append)
        self.network: dict[str, Any] | None = None
        """The report of `network_probe`, once the links were measured."""
        self.loaded_at = 0.0
        """When this generation had its state, seconds since the epoch."""
        self.reported_generation = 0
        """The newest generation whose first step was reported."""
        self.nonfinite_guard = NonFiniteGuard(self.training.precision)
        self.join_in(context, self.task.build_model())

    def join_in(self, context: RankContext, model: nn.Module) -> None:
        """Put together what depends on the group of ranks, which is joined.

        Args:
            model: the plain one. Only what the strategy keeps of it is kept.
        """
        spec = context.launch.spec
        self.context = context
        self.rank = context.environment.rank
        self.world_size = context.environment.world_size
        group = process_group.cpu_group()
        check_same_data(len(self.task.train_data), group)
        refuse_extra_state(model)
        self.num_parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
        self.capture = GradientCapture(
            [name for name, p in model.named_parameters() if p.requires_grad],
            self.training.capture_gradients_every_steps,
            group,
        )
        self.utilization = self.count_operations(model)
        self.strategy = self.spread(model)
        self.optimizer = self.optimizer_of(self.strategy.parameters.values())
        self.precision = MixedPrecision(
            self.training.precision, self.device, replicated=self.strategy.replicated
        )
        self.state = TrainingState(
            strategy=self.strategy,
            optimizer=self.optimizer,
            precision=self.precision,
            sampler=self.sampler,
            device=self.device,
            group=group,
            seed=self.training.seed,
            task=spec.task,
        )
        self.share = Share(
            self.strategy.samples,
            self.strategy.num_parts,
            self.training.gradient_accumulation,
            self.strategy.held,
        )
        self.data_workers = Workers.wanted(
            self.training, self.reader, context.environment.local_world_size
        )
        self.step_sync = StepSync(group)
        self.rank0_log = Rank0Log(self.rank, context.metrics, context.events)
        self.chain: ChainWriter | None = None
        if self.training.reproducible:
            part = self.training.global_batch_size // self.strategy.num_parts
            self.chain = ChainWriter(
                self.step_sync.gather,
                self.rank0_log.append_tables,
                first_place=part * (self.strategy.samples or 0),
            )
        self.loader = Loader(
            self.reader,
            self.sampler,
            self.share,
            self.data_workers,
            context.describe,
            self.chain.read if self.chain is not None else None,
        )
        # Dropout must differ between samples; the weights above must not.
        seed_everything(derive_seed(self.training.seed, "rank", self.strategy.stream, 0))

        self.optimizer_step = OptimizerStep(
            self.strategy,
            self.optimizer,
            self.precision,
            self.clock,
            gradient_clip=self.training.gradient_clip,
            measures=len(self.task.metric_names),
            shard_begins=self.seed_shard,
            update_begins=self.confirm,
        )
        self.recorder = Recorder(
            rank=self.rank,
            device=self.device,
            clock=self.clock,
            spool=context.metrics,
            rank0_log=self.rank0_log,
            metric_names=self.task.metric_names,
            global_batch_size=self.training.global_batch_size,
            expected_bubble=self.strategy.expected_bubble,
            utilization=self.utilization,
            sending=self.strategy.reports_sending,
            compressing=self.strategy.compresses,
        )
        self.stragglers = Stragglers()
        self.console = Console(self.rank, self.total_steps)
        self.saving = CheckpointSchedule(
            launch=context.launch,
            state=self.state,
            events=context.events,
            rank=self.rank,
            on_saved=self.console.saved,
        )
        self.prepared = False

    def strategy_config(self) -> choose.StrategyConfig:
        """Return the strategy that the spec asks for."""
        return strategy_config_of(self.context.launch.spec)

    def spread(self, model: nn.Module) -> Strategy:
        """Distribute the model over the ranks of the group."""
        return choose.apply(self.strategy_config(), model, self.task.declaration(), self.device)

    def optimizer_of(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        return build_optimizer(parameters, self.training)

    def count_operations(self, model: nn.Module) -> Utilization | None:
        """Measure a step of the plain model against its devices' peak, where that is known."""
        peak = peak_of(self.device, self.training.precision)
        if peak is None:
            return None
        spec = self.context.launch.spec
        parts = spec.degrees.samples * self.training.gradient_accumulation * spec.microbatches
        return utilization_of(
            self.task,
            model,
            self.reader,
            samples=max(1, self.training.global_batch_size // parts),
            batch=self.training.global_batch_size,
            peak=peak,
            devices=self.world_size,
        )

    def run(self) -> int:
        """Train to the end, or to the step at which all ranks stop; returns the exit code."""
        begun = time.monotonic()
        self.resume()
        return self.train(begun)

    def train(self, begun: float) -> int:
        """Train from the job's present step.

        Args:
            begun: when (monotonic) this rank began.
        """
        self.progress.begin(self.state.step)
        if self.context.launch.pauses_at(self.state.step):
            # An attempt before this one saved there, and failed before it had paused.
            return self.pause()
        while self.state.step < self.total_steps:
            self.train_step()
            code = self.settle()
            if code is not None:
                return code
        return self.complete(time.monotonic() - begun)

    def settle(self) -> int | None:
        """Do what is due after a step; returns an exit code when all ranks agree to stop here."""
        step = self.state.step
        last = step == self.total_steps
        evaluate_now = last or _divides(self.training.evaluate_every_steps, step)
        pauses_here = not last and self.context.launch.pauses_at(step)
        save_now = last or pauses_here or self.saving.due(step)
        if not (self.step_sync.due(step) or evaluate_now or save_now or self.capture.due):
            return None
        result = self.exchange()
        self.report_first_step()
        if result.command is Command.STOP:
            return EXIT_STOPPED
        if evaluate_now:
            with self.progress.during(Activity.EVALUATING):
                self.evaluate()
        self.prepare_once(result)
        pausing = pauses_here or (result.command is Command.PAUSE and not last)
        if save_now or result.save or pausing:
            with self.progress.during(Activity.SAVING):
                self.save()
        return self.pause() if pausing else None

    def prepare_once(self, result: SyncResult) -> None:
        """Prepare saves, and measure the links, after the first step of a group."""
        if self.prepared:
            return
        with self.progress.during(Activity.SAVING):
            self.saving.prepare()
            if result.command is Command.RUN:
                self.measure_network()
        self.prepared = True

    def pause(self) -> int:
        """Wait for the save and report the pause; returns the exit code."""
        self.progress.set_activity(Activity.ENDING)
        self.profiles.finish("the job paused")
        self.saving.finish()
        measured = self.measured.as_event(self.strategy.sent_bytes)
        data = {"step": self.state.step, "measured": measured}
        self.rank0_log.append_event("paused", data)
        self.console.ended("paused", self.state.step)
        return EXIT_PAUSED

    def report_first_step(self) -> None:
        """Report the first step of a generation: an incident may end with that."""
        generation = self.context.launch.generation
        if generation != self.reported_generation:
            self.reported_generation = generation
            data = {"generation": generation, "step": self.state.step, "loaded": self.loaded_at}
            self.rank0_log.append_event("stepped", data)

    def save(self) -> None:
        """Begin to save the present step."""
        self.saving.save(self.recorder.finite())
        if self.chain is not None and self.rank == 0:
            self.chain.weights(self.state.step, weights_sha256(self.strategy.full_weights()))

    def resume(self, **more: Any) -> None:
        """Start from the launch's checkpoint, if it names one, and report the position.

        Args:
            more: reported with it.
        """
        started: dict[str, Any] = {
            "generation": self.context.launch.generation,
            "resumed_from": None,
            "total_steps": self.total_steps,
            "samples": len(self.task.train_data),
            **more,
        }
        self.saving.check_folder()
        # Of a host that has none too: what others have on their disks it cannot know.
        loaded = self.saving.load(self.context.launch.checkpoint.resume)
        if loaded is not None:
            started["resumed_from"] = self.state.step
            # The last ones of a job that ended before it could report them.
            self.recorder.last |= loaded.manifest.metrics
            if loaded.notes:
                started["note"] = "; ".join(map(str, loaded.notes))
                started["passed_over"] = [asdict(each) for each in loaded.notes]
        self.step_sync.begin(self.state.step)
        self.loaded_at = time.time()
        self.rank0_log.append_event("started", started)
        self.console.started(
            self.context.launch.spec.name,
            device=str(self.device),
            world_size=self.world_size,
            samples=started["samples"],
            parameters=self.num_parameters,
            step=self.state.step,
        )

    def measure_network(self) -> None:
        """Measure the links between ranks once, if the spec asks for it, and report them.

        Not before the first step: that is what everybody waits for.
        """
        spec = self.context.launch.spec
        sync = spec.parallelism.gradient_sync
        if sync.measure_links and self.network is None and self.world_size > 1:
            self.network = network_probe.measure(
                self.strategy, spec.gradient_sync, sync.bucket_mb, self.device
            )
            self.rank0_log.append_event("network", self.network)

    def train_step(self) -> None:
        """Take one optimizer step over one global batch."""
        step = self.state.step + 1
        rounds = self.training.gradient_accumulation
        rate = learning_rate(
            step,
            peak=self.training.learning_rate,
            total=self.total_steps,
            schedule=self.training.learning_rate_schedule,
        )
        if self.profiles.is_active:
            self.profiles.step_begins(step, self.context.launch, self.rank)
        self.clock.start()
        watch = self.watch(step)
        means, norm = self.optimizer_step.run(self.batches(), rounds, self.task.loss, rate, watch)
        self.clock.finish()
        if self.profiles.is_active:
            self.profiles.step_ended()
        self.progress.step(step)
        self.state.step = step
        self.recorder.step(step, means, norm, rate)
        # Rank 0 has had its part in this step, and so has written all that came before.
        self.rank0_log.acknowledge()

    def watch(self, step: int) -> GradientWatch | None:
        """Return the watch of a step's gradients, if it is captured."""
        return self.capture.watch(step)

    def seed_shard(self, shard: int) -> None:
        """Seed the random numbers of the next step's logical shard, or of a pipeline's loss of a
        micro-batch."""
        seed_everything(derive_seed(self.training.seed, "shard", self.state.step + 1, shard))

    def confirm(self) -> None:
        """Check that the other ranks' data arrived complete, before weights change."""

    def batches(self) -> Iterator[Any]:
        """Yield this rank's micro-batches of the next global batch, on its device."""
        self.progress.reading()
        for read in self.loader.step():
            self.progress.read()
            batch = to_device(read, self.device)
            self.clock.mark(Phase.DATA)
            yield batch
            self.progress.reading()
        self.progress.read()

    def exchange(self) -> SyncResult:
        """Exchange the metrics of the steps since the last exchange, and agree on what to do."""
        rows = self.recorder.rows()
        result = self.step_sync.exchange(
            self.state.step,
            rows,
            seconds=self.recorder.seconds_column,
            command=self.command(),
            save=self.saving.save_requested(),
            peak_memory_bytes=peak_memory_bytes(self.device),
            request=self.control.request,
            generation=self.control.generation,
            profile=self.profiles.known,
        )
        # All that is exchanged of these steps comes before anything of them is written: should it
        # break off, they are reported again as a whole.
        samples = self.chain.gather() if self.chain is not None and len(rows) else []
        first = self.state.step - len(rows) + 1
        columns = self.recorder.write(result)
        if self.chain is not None and columns:
            self.state.link = self.chain.add(
                self.state.link, first, samples, columns["loss"], columns["gradient_norm"]
            )
        self.report_slowest(result)
        self.measured.add(columns.get("step_seconds", ()), result.peak_memory_bytes)
        self.console.progress(self.state.step, self.recorder.last)
        captured = self.capture.record()
        if captured is not None:
            self.rank0_log.append_event("gradients", captured.as_json())
        self.capture.note_request(result.request)
        self.profiles.agree(result.profile)
        self.nonfinite_guard.check(first, columns.get("loss", ()), columns.get("gradient_norm", ()))
        self.check_numbers()
        return result

    def command(self) -> Command:
        """Return this rank's command, to be shared with all."""
        return self.control.command

    def report_slowest(self, result: SyncResult) -> None:
        """Report the rank that the others wait for, where all of them do the same work."""
        if not len(result.ranks) or not have_equal_work(self.context.launch.spec, self.world_size):
            return
        seconds = self.recorder.seconds_column
        waits = seconds + 1 + Phase.COMMUNICATION
        slowest = self.stragglers.add(result.ranks[:, seconds] - result.ranks[:, waits])
        if slowest is not None:
            points = {"slowest_rank": float(slowest.rank), "slowest_rank_ratio": slowest.ratio}
            self.recorder.write_points(self.state.step, points)

    def check_numbers(self) -> None:
        """Check that the job's losses and gradients so far are finite; on all ranks alike.

        Raises:
            NonFiniteLossError: too many in a row are not. With fp32 and bf16 no checkpoint was
                saved since the first; with fp16 those steps changed no weight.
        """
        if self.nonfinite_guard.too_many is not None:
            self.saving.finish()
            raise NonFiniteLossError(self.nonfinite_guard.too_many.message(self.saving.saved_step))
        skipped = self.nonfinite_guard.first_skipped
        if skipped is not None and not self.nonfinite_guard.warned:
            self.nonfinite_guard.warned = True
            message = f"the loss is {skipped.loss} at step {skipped.step}; the step was skipped"
            self.rank0_log.append_event("note", {"message": message})

    def evaluate(self) -> None:
        """Evaluate the validation data, if the task has any."""
        data = self.task.eval_data
        if data is None:
            return
        batches = eval_batches(
            Reader(self.task, data, self.training.seed),
            len(data),
            self.share,
            self.data_workers,
            self.task.eval_batch_size,
            self.context.describe,
            together=self.strategy.evaluates_together,
        )
        self.strategy.share_buffers()
        metrics = evaluate(
            self.task,
            self.strategy.evaluated,
            batches,
            device=self.device,
            precision=self.precision,
            gather=self.step_sync.gather,
            held=math.ceil(self.strategy.num_parts / self.strategy.degrees.samples),
        )
        self.strategy.end_evaluation()
        self.recorder.write_points(self.state.step, metrics)
        self.console.evaluated(self.state.step, metrics)

    def complete(self, seconds: float) -> int:
        """Wait for the last checkpoint and report the result."""
        self.progress.set_activity(Activity.ENDING)
        self.profiles.finish("the job took its last step")
        self.saving.finish()
        result = {
            "steps": self.state.step,
            "metrics": self.recorder.finite(),
            "weights_sha256": weights_sha256(self.strategy.full_weights()),
            "seconds": seconds,
            "measured": self.measured.as_event(self.strategy.sent_bytes),
        }
        if self.network is not None:
            result["network"] = self.network
        if self.chain is not None:
            result["chain"] = self.state.link
        self.rank0_log.append_event("completed", result)
        self.console.ended("completed", self.state.step)
        return EXIT_COMPLETED


def run(context: RankContext) -> int:
    """Train as `context.launch` says, in the joined process group; returns the exit code."""
    loop: Loop | None = None
    try:
        loop = Loop(context)
        return loop.run()
    except (MemoryError, RuntimeError) as error:
        step = None if loop is None else loop.state.step + 1
        raise explain_out_of_memory(error, context, step) from error


def _divides(every: int | None, step: int) -> bool:
    return every is not None and step % every == 0
