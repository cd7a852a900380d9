"""Token labeling (ViT-ResNAS, Section 2.4): every patch token of the last stage learns a label of its own.

A batch is either cut, patch by patch on a KxK grid (a patch's label is that of the image it comes from), or mixed as by
Mixup (all patches have the image's label): one or the other per batch, never both. The loss of the patches is added to
that of the image as it is.

Without dense labels a patch's label is its image's. With them (`maps`: for each image of the batch, as it stands there,
KxK class scores) a cut patch has its own; a mixed batch has image labels still. Nothing moves maps along with crops and
flips: they belong to images that are only fitted.

What the paper leaves open: a cut image keeps round(lambda x patches) of its own patches, lambda ~ Beta(a, a), at random
places; its partner is, as in timm, the image as far from the batch's end as it is from the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import NamedTuple

import numpy as np
import torch
from timm.data.mixup import mixup_target
from torch import Tensor

from vitruvius.arch import refuse, require_positive
from vitruvius.data import Mix, hashes

__all__ = [
    "LabelMaps",
    "Labelled",
    "TokenLabels",
    "soft_cross_entropy",
    "token_label_loss",
]


class Labelled(NamedTuple):
    images: Tensor
    """(B, C, H, W)"""
    targets: Tensor
    """(B, classes): soft labels of the images."""
    patch_targets: Tensor
    """(B, rows x columns, classes): soft labels of the patches, row by row."""


@dataclass(frozen=True, kw_only=True)
class TokenLabels:
    """grid: rows and columns of the last stage's tokens; cutmix_alpha, mixup_alpha: of the beta distributions;
    switch_prob: that a batch is cut, and not mixed."""

    num_classes: int
    grid: tuple[int, int]
    mixup_alpha: float = 0.8
    cutmix_alpha: float = 1.0
    switch_prob: float = 0.5
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.grid, list | tuple) or len(self.grid) != 2:
            refuse("grid is the rows and columns of the last stage's tokens", self.grid, "(4, 4), say")
        object.__setattr__(self, "grid", tuple(self.grid))
        for side in self.grid:
            require_positive("a side of the token grid", side)
        Mix(
            num_classes=self.num_classes,
            mixup_alpha=self.mixup_alpha,
            cutmix_alpha=self.cutmix_alpha,
            switch_prob=self.switch_prob,
            label_smoothing=self.label_smoothing,
        )
        if not (self.mixup_alpha or self.switch_prob == 1) or not (self.cutmix_alpha or self.switch_prob == 0):
            refuse(
                "a branch that is switched to needs its alpha",
                (self.mixup_alpha, self.cutmix_alpha, self.switch_prob),
                "both alphas above 0, or a switch_prob of 0 (only Mixup) or 1 (only patch-wise CutMix)",
            )

    def __call__(
        self, images_BCHW: Tensor, labels_B: Tensor, key: tuple[int, ...], maps: Tensor | None = None
    ) -> Labelled:
        """A new batch with soft labels; all that is random comes from the key.

        maps: (B, rows, columns, classes), scores of each image's own patches that sum to one.
        """
        batch, patches = len(images_BCHW), self.grid[0] * self.grid[1]
        if batch % 2:
            refuse("images are mixed in pairs, so a batch must be even", batch, "2, 4, 6, ...")
        if maps is not None and tuple(maps.shape) != (batch, *self.grid, self.num_classes):
            refuse("label maps have one row of class scores a patch", tuple(maps.shape), (batch, *self.grid, "classes"))
        if min(images_BCHW.shape[2:]) < max(self.grid):
            refuse("every patch needs a pixel", tuple(images_BCHW.shape[2:]), f"{self.grid} or more")
        rng = np.random.default_rng(int(hashes([key])[0]))
        if rng.random() < self.switch_prob:
            return self._cut(images_BCHW, labels_B, rng, maps)
        mix = Mix(num_classes=self.num_classes, mixup_alpha=self.mixup_alpha, label_smoothing=self.label_smoothing)
        mixed, targets = mix(images_BCHW, labels_B, key)
        return Labelled(mixed, targets, targets.unsqueeze(1).expand(-1, patches, -1))

    def _cut(self, x_BCHW: Tensor, labels_B: Tensor, rng: np.random.Generator, maps: Tensor | None) -> Labelled:
        """Patch-wise CutMix; a label's mass is the share of pixels, also where the grid does not divide the image."""
        batch, device = len(x_BCHW), x_BCHW.device
        patches = self.grid[0] * self.grid[1]
        kept = np.rint(rng.beta(self.cutmix_alpha, self.cutmix_alpha, batch) * patches).astype(np.int64)
        order = rng.permuted(np.tile(np.arange(patches), (batch, 1)), axis=1)
        own_BN = order < kept[:, None]
        rows, columns = (np.arange(n) * k // n for n, k in zip(x_BCHW.shape[2:], self.grid, strict=True))
        own_BHW = own_BN.reshape(batch, *self.grid)[:, rows][:, :, columns]
        share_B1 = torch.from_numpy(own_BHW.mean(axis=(1, 2))).to(device, torch.float32).unsqueeze(1)
        own = torch.from_numpy(own_BHW).to(device).unsqueeze(1)
        images = torch.where(own, x_BCHW, x_BCHW.flip(0))
        y_BC = mixup_target(labels_B, self.num_classes, smoothing=self.label_smoothing)
        y_BNC = y_BC.unsqueeze(1) if maps is None else maps.flatten(1, 2).to(y_BC)
        own_patch = torch.from_numpy(own_BN).to(device).unsqueeze(2)
        patch_targets = torch.where(own_patch, y_BNC, y_BNC.flip(0))
        return Labelled(images, share_B1 * y_BC + (1 - share_B1) * y_BC.flip(0), patch_targets)


class LabelMaps:
    """Dense labels on disk: one .npy of (images, rows, columns, classes), row i for image i of the set it was made for.

    It stays on disk; the batch's rows are read.
    """

    def __init__(self, file: str | FilePath, *, images: int, grid: tuple[int, int], num_classes: int) -> None:
        try:
            self._array = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            refuse(f"label maps cannot be read ({error})", str(file), "a .npy file of numbers")
        expected = (images, *grid, num_classes)
        if self._array.shape != expected or self._array.dtype.kind != "f":
            refuse("label maps do not fit", (self._array.dtype.str, self._array.shape), f"floats of shape {expected}")

    def __call__(self, indices: Sequence[int]) -> Tensor:
        """(B, rows, columns, classes), each patch's scores divided by their sum."""
        scores = torch.from_numpy(np.asarray(self._array[np.asarray(indices)], dtype=np.float32))
        total = scores.sum(-1, keepdim=True)
        if bool((scores < 0).any()) or not bool((total > 0).all()) or not bool(total.isfinite().all()):
            refuse("a patch's class scores are not negative and not all zero", "such a patch", "probabilities, say")
        return scores / total


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean over everything but the classes, which come last."""
    return -(targets * logits.log_softmax(dim=-1)).sum(dim=-1).mean()


def token_label_loss(logits: Tensor, patches: Tensor, targets: Tensor, patch_targets: Tensor) -> Tensor:
    """The image's loss plus that of the patches, their mean, unscaled."""
    if patches.shape != patch_targets.shape:
        refuse("token labels and the last stage have other grids", tuple(patch_targets.shape), tuple(patches.shape))
    return soft_cross_entropy(logits, targets) + soft_cross_entropy(patches, patch_targets)
