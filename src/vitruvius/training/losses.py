"""What a step's gradient is the gradient of."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor

from vitruvius.models import Backbone
from vitruvius.superformer import Superformer
from vitruvius.training.config import Settings, SuperformerConfig
from vitruvius.training.strategies import Pass, run_pass
from vitruvius.training.token_labels import token_label_loss

__all__ = ["step_gradients"]


def step_gradients(
    model: Backbone | Superformer,
    passes: Sequence[Pass],
    batch: Sequence[Tensor],
    config: Settings,
    accelerator: Accelerator,
) -> Tensor:
    """Adds the gradients of all passes over all parts of the batch; their loss, the mean over the parts.

    batch: images, labels (or soft labels), and with token labeling the soft labels of patches. Part p has every n-th
    image from the p-th on, so that architectures that share the batch share each part.
    """
    how = config.execution if isinstance(config, SuperformerConfig) else "auto"
    total = torch.zeros((), device=batch[0].device)
    teaches = any(each.taught for each in passes)
    half = accelerator.mixed_precision != "no"
    for part in range(config.accumulate):
        x, targets, *patch_targets = (tensor[part :: config.accumulate] for tensor in batch)
        taught: Tensor | None = None
        for each in passes:
            with accelerator.autocast() if half else nullcontext():
                outputs = run_pass(model, each, x, how, patch_logits=bool(patch_targets))
            logits, *patches = map(_precise, outputs if patch_targets else (outputs,))
            goal = taught if each.taught and taught is not None else targets
            if patch_targets:
                loss = token_label_loss(logits, patches[0], goal, patch_targets[0])
            else:
                # Soft labels are smoothed already, and a teacher's need no smoothing.
                smoothing = 0.0 if goal.is_floating_point() else config.label_smoothing
                loss = F.cross_entropy(logits, goal, label_smoothing=smoothing)
            if teaches and taught is None:
                taught = torch.softmax(logits.detach(), dim=-1)
            if config.accumulate > 1:
                loss = loss / config.accumulate
            (loss if accelerator.scaler is None else accelerator.scaler.scale(loss)).backward()
            total += loss.detach()
    return total


def _precise(logits: Tensor) -> Tensor:
    """Losses are not taken in half precision."""
    return logits if logits.dtype == torch.float64 else logits.float()
