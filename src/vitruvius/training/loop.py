"""The one loop: superformers, retraining, fine-tuning and transfer.

Everything random of a step comes from (seed, step, process), and a checkpoint holds all that the next step reads. So a
run that is killed at any moment and started again ends with the weights and the log of one that never stopped.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from vitruvius.files import alone_in, write_json
from vitruvius.training.checkpoint import Checkpoint, Checkpoints, optimizer_tensors, restore_optimizer
from vitruvius.training.config import Settings
from vitruvius.training.evaluate import Judge
from vitruvius.training.feed import Feed
from vitruvius.training.jobs import ModelJob
from vitruvius.training.log import RunLog, Watch
from vitruvius.training.losses import step_gradients
from vitruvius.training.optim import MovingAverage, learning_rate, make_optimizer
from vitruvius.training.plan import Plan, make_plan
from vitruvius.training.processes import agree, average, make_accelerator
from vitruvius.training.run import FINAL, RESULT, Run, open_run, start_folder

__all__ = ["train"]

_LOWER = 0.5
"""What a rollback does to the learning rate."""
_CURVE_EVERY = 50
_SAVE_APART = 2**34
"""Multiply-accumulates, some seconds of a CPU core: where epochs have fewer, not every one ends with a checkpoint."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the next step reads beside the tensors."""

    step: int = 0
    loss_sum: float = 0.0
    """Over the sound steps of the epoch so far."""
    sound_steps: int = 0
    rollbacks: int = 0


def train(config: Settings, out: str | Path, *, quiet: bool = False) -> Run:
    """Trains what the configuration says in a folder, from where an earlier call was cut off."""
    accelerator = make_accelerator(config)
    plan = make_plan(config, accelerator.num_processes)
    folder = Path(out)
    with alone_in(folder) if accelerator.is_main_process else nullcontext():
        if accelerator.is_main_process:
            start_folder(folder, config, plan.data, plan.job.record())
        accelerator.wait_for_everyone()
        if not (folder / RESULT).exists():
            Loop(plan, folder, accelerator, quiet).run()
        accelerator.wait_for_everyone()
    return open_run(folder)


class Loop:
    def __init__(self, plan: Plan, folder: Path, accelerator: Accelerator, quiet: bool) -> None:
        self.plan, self.folder, self.accelerator, self.quiet = plan, folder, accelerator, quiet
        self.config, self.job, self.order = plan.config, plan.job, plan.order
        self.main = accelerator.is_main_process
        self.model = self.job.model.to(accelerator.device)
        self.parameters = list(self.model.parameters())
        trained = {name for name, _ in self.model.named_parameters()}
        state = self.model.state_dict().items()
        self.statistics = [tensor for name, tensor in state if name not in trained and tensor.is_floating_point()]
        self.optimizer = make_optimizer(self.model, self.config)
        self.scaler = accelerator.scaler
        self.average = None if self.config.ema_decay is None else MovingAverage(self.model, self.config.ema_decay)
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.log = RunLog(folder / "log.jsonl", writes=self.main)
        self.feed = Feed(
            plan.images,
            plan.augment,
            plan.label,
            self.order,
            accelerator.process_index,
            accelerator.num_processes,
        )
        self.judge = self._judge(plan.data.search.val)
        epoch = self.order.steps_per_epoch
        self.save_every = self.config.checkpoint_every or epoch * math.ceil(_SAVE_APART / plan.step_macs / epoch)
        self.progress = Progress()
        self.bad_in_a_row = 0

    def _judge(self, images: Any) -> Judge:
        config, data = self.config, self.plan.data.search
        return Judge(images, data, self.job.img_size, config.batch_size, self.accelerator, config.workers)

    # -- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        for _ in self.steps():
            pass
        self._finish()

    def steps(self) -> Iterator[int]:
        """Trains, from the newest checkpoint to the end, and yields the number of every step that is done."""
        self._restore()
        device = self.accelerator.device
        with ExitStack() as stack:
            # Dropout draws from torch's generator, which is set anew at every step and given back in the end.
            stack.enter_context(torch.random.fork_rng(devices=[device] if device.type == "cuda" else []))
            first = self.progress.step
            watch = Watch(self.folder, self.plan.steps, self.config.batch_size, first, self.main, self.quiet)
            self.watch = stack.enter_context(watch)
            for text in (self.plan.headline(), *self.plan.notes()):
                watch.say(text)
            if first:
                watch.say(f"going on from step {first:,}")
            while self.progress.step < self.plan.steps:
                yield from self._steps()

    def _steps(self) -> Iterator[int]:
        """Steps until the end, or until a rollback, after which the images come from its checkpoint on."""
        pin = self.accelerator.device.type == "cuda"
        batches = self.feed.batches(self.progress.step, self.plan.steps, self.config.workers, pin)
        for batch in batches:
            if not self._step([part.to(self.accelerator.device, non_blocking=pin) for part in batch]):
                return
            done = self.progress.step
            self.watch.step(done)
            epoch, place = divmod(done, self.order.steps_per_epoch)
            if place == 0:
                self._epoch(epoch)
            if done % self.save_every == 0 and not self.bad_in_a_row:
                self._save()
            yield done

    def _step(self, batch: list[torch.Tensor]) -> bool:
        """One step of training; False after a rollback."""
        step, config = self.progress.step, self.config
        if config.drop_path_rate or config.drop_rate:
            self._seed(step)
        rate = learning_rate(config, step, self.order.steps_per_epoch) * _LOWER**self.progress.rollbacks
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if not self.model.training:
            self.model.train()
        self.optimizer.zero_grad()
        before = [tensor.clone() for tensor in self.statistics]
        passes = self.job.passes(step)
        loss = step_gradients(self.model, passes, batch, config, self.accelerator)
        value = loss.item()
        if not agree(step, passes, math.isfinite(value), self.accelerator.device):
            return self._bad_step(before, value)
        average(p.grad for p in self.parameters if p.grad is not None)
        average(self.statistics)
        norm = self._clip()
        if self.scaler is not None:  # which skips such steps by itself, and scales less
            self.scaler.step(self.optimizer)
            self.scaler.update()
        elif math.isfinite(norm):
            self.optimizer.step()
        else:
            return self._bad_step(before, value, norm)
        if self.average is not None:
            self.average.update(self.model)
        if step % _CURVE_EVERY == 0:
            self.watch.curves(step, {"loss": value, "learning rate": rate, "gradient norm": norm})
        self.bad_in_a_row = 0
        progress = self.progress
        self.progress = replace(
            progress, step=step + 1, loss_sum=progress.loss_sum + value, sound_steps=progress.sound_steps + 1
        )
        return True

    def _seed(self, step: int) -> None:
        """Of dropout; `torch.manual_seed` would look for every kind of device at every step."""
        word = _word(self.config.seed, step, self.accelerator.process_index)
        torch.default_generator.manual_seed(word)
        match self.accelerator.device.type:
            case "cuda":
                torch.cuda.manual_seed(word)
            case "mps":
                torch.mps.manual_seed(word)

    def _clip(self) -> float:
        """The gradient's norm before it is clipped; all processes have the same, as they have the same gradients."""
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))))
        most = self.config.clip_grad
        if most is not None and most < norm < math.inf:
            torch._foreach_mul_(gradients, most / norm)
        return norm

    def _bad_step(self, before: list[torch.Tensor], value: float, norm: float | None = None) -> bool:
        """A loss (or its gradient) that is not finite: the step is skipped, and batch norms forget it; after a few in a
        row the run goes back, and then gives up."""
        step = self.progress.step
        for tensor, kept in zip(self.statistics, before, strict=True):
            tensor.copy_(kept)
        self.bad_in_a_row += 1
        self.log.write(event="skipped", step=step, loss=repr(value), **({} if norm is None else {"norm": repr(norm)}))
        what = f"the loss is {value}" if norm is None else f"the gradient's norm is {norm}"
        self.watch.say(f"step {step}: {what}, so the step is skipped")
        if self.bad_in_a_row < self.config.stop_after_bad_steps:
            self.progress = replace(self.progress, step=step + 1)
            return True
        rollbacks = self.progress.rollbacks + 1
        if rollbacks > self.config.most_rollbacks:
            raise FloatingPointError(
                f"the loss or its gradient was not finite at {self.bad_in_a_row} steps in a row (the last is {step}) "
                f"after {self.config.most_rollbacks} rollback(s); {self.folder} keeps the last good checkpoint: try a "
                "lower learning rate, gradient clipping (clip_grad), or a longer warm-up"
            )
        self._restore(cut_log=False)
        self.progress = replace(self.progress, rollbacks=rollbacks)
        factor = _LOWER**rollbacks
        self.log.write(event="rollback", step=self.progress.step, rollbacks=rollbacks, lr_factor=factor)
        self.watch.say(f"back to step {self.progress.step} with {factor:g} of the learning rate")
        self.watch.restart(self.progress.step)
        return False

    def _epoch(self, epoch: int) -> None:
        """The end of an epoch: what was lost, and, on schedule, what is measured."""
        progress, config = self.progress, self.config
        self.watch.lap(progress.step)
        loss = progress.loss_sum / progress.sound_steps if progress.sound_steps else math.nan
        text = f"epoch {epoch}/{config.epochs}  loss {loss:.4f}"
        measured: dict[str, Any] = {}
        if epoch % config.validate_every == 0 or epoch == config.epochs:
            measured = self._measure(self.judge)
            text += f"  {measured.pop('summary')}"
        self.log.write(event="epoch", epoch=epoch, step=progress.step, loss=loss, **measured)
        if measured:  # the bar shows how far the others are
            self.watch.say(text)
        self.watch.curves(progress.step, _curves(measured))
        self.watch.restart(progress.step)
        self.progress = replace(progress, loss_sum=0.0, sound_steps=0)

    def _measure(self, judge: Judge) -> dict[str, Any]:
        """By the moving average, where there is one."""
        self.model.eval()
        with self._averaged():
            return self.job.health(judge)

    def _averaged(self) -> Any:
        return nullcontext() if self.average is None else self.average.worn_by(self.model)

    def _finish(self) -> None:
        result: dict[str, Any] = {"steps": self.progress.step, "rollbacks": self.progress.rollbacks}
        result["validation"] = self._measure(self.judge)
        if isinstance(self.job, ModelJob):
            result["test"] = self._measure(self._judge(self.plan.data.test()))
        if self.main:
            self.model.eval()
            with self._averaged():
                self.job.save(self.folder / FINAL)
            write_json(self.folder / RESULT, result)

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def _save(self) -> None:
        if not self.main:
            return
        tensors = {"model": dict(self.model.state_dict()), "optimizer": optimizer_tensors(self.optimizer)}
        if self.average is not None:
            tensors["average"] = self.average.tensors
        state = {
            "progress": asdict(self.progress),
            "log_bytes": self.log.size(),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
        }
        self.checkpoints.save(Checkpoint(self.progress.step, tensors, state))

    def _restore(self, cut_log: bool = True) -> None:
        """The newest sound checkpoint; a new run begins with one. A rollback leaves in the log what led to it."""
        found = self.checkpoints.newest()
        if found is None and not cut_log:
            raise RuntimeError(f"no checkpoint in {self.folder} is sound, so the run cannot go back to one")
        if found is None:
            self.log.cut(0)
            self.log.write(event="start", **self.plan.stated())
            self.accelerator.wait_for_everyone()
            self._save()
            return
        self.model.load_state_dict(found.tensors["model"])
        restore_optimizer(self.optimizer, found.tensors["optimizer"])
        if self.average is not None:
            self.average.load(found.tensors["average"])
        if self.scaler is not None:
            self.scaler.load_state_dict(found.state["scaler"])
        self.progress = Progress(**found.state["progress"])
        self.bad_in_a_row = 0
        if cut_log:
            self.log.cut(found.state["log_bytes"])


def _word(*words: int) -> int:
    return int.from_bytes(hashlib.blake2b(repr(words).encode(), digest_size=8).digest(), "big") >> 1


def _curves(measured: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers in nested results, by their path."""
    found: dict[str, float] = {}
    for name, value in measured.items():
        if isinstance(value, dict):
            found |= _curves(value, f"{prefix}{name}/")
        elif isinstance(value, float):
            found[prefix + name] = value
    return found
