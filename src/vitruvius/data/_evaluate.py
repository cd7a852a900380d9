"""Batches for evaluation: fitted and normalised, nothing random."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitruvius.arch import ImageSize, image_shape, refuse, require_positive
from vitruvius.data._fit import check_interpolation, check_statistics, fit, normalised, require_channels
from vitruvius.data._images import Images, Indices

_SMALL = 128
"""Sides below this many pixels are not cropped unless told so: there is no border to spare."""


def default_crop_pct(img_size: ImageSize) -> float:
    """timm's 0.875, but 1 for small images."""
    return 0.875 if min(image_shape(img_size)) >= _SMALL else 1.0


def stream_batches(
    images: Images,
    batch_size: int,
    *,
    img_size: ImageSize,
    mean: Sequence[float],
    std: Sequence[float],
    crop_pct: float | None = None,
    interpolation: str = "bicubic",
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    indices: Indices | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Images and labels, a batch at a time, for sets that prepared would not fit into memory.

    crop_pct: the share of the shorter side that is seen; 0.875 as timm has it, 1 below 128 pixels.
    indices: which images, in which order; all of them unless said otherwise.
    """
    require_positive("batch_size", batch_size)
    check_interpolation(interpolation)
    mean, std = check_statistics(mean, std)
    size = image_shape(img_size)
    crop = default_crop_pct(size) if crop_pct is None else float(crop_pct)
    if not 0 < crop <= 1:
        refuse("crop_pct is the share of an image that is seen", crop, "above 0, up to 1")
    every = np.arange(len(images)) if indices is None else np.asarray(indices, dtype=np.int64)
    return _batches(images, every, batch_size, size, mean, std, crop, interpolation, torch.device(device), dtype)


def _batches(
    images: Images,
    every: np.ndarray,
    batch_size: int,
    size: tuple[int, int],
    mean: tuple[float, ...],
    std: tuple[float, ...],
    crop: float,
    interpolation: str,
    device: torch.device,
    dtype: torch.dtype,
) -> Iterator[tuple[Tensor, Tensor]]:
    for first in range(0, len(every), batch_size):
        chosen = every[first : first + batch_size]
        batch = np.stack([fit(pixels, size, crop, interpolation) for pixels in images.pixels(chosen)])
        require_channels(batch[0], mean)
        labels = torch.from_numpy(images.labels[chosen])
        yield normalised(batch, mean, std).to(device=device, dtype=dtype), labels.to(device)


def eval_batches(images: Images, batch_size: int, **options: Any) -> list[tuple[Tensor, Tensor]]:
    """All batches of `stream_batches`, with its options, prepared once for many evaluations."""
    return list(stream_batches(images, batch_size, **options))
