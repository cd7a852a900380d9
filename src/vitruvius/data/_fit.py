"""How an image becomes one of the network's size, and pixels numbers: the same for evaluation and for training."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from timm.data import create_transform
from torch import Tensor
from torchvision.transforms import Compose

from vitruvius.arch import refuse, require_choice
from vitruvius.data._decode import to_image

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
Shape = tuple[int, int]


def fit(pixels_HWC: np.ndarray, size: Shape, crop_pct: float, interpolation: str) -> np.ndarray:
    """timm's evaluation: the shorter side to size / crop_pct, then the centre."""
    if pixels_HWC.shape[:2] == size and crop_pct == 1.0:
        return pixels_HWC
    fitted = np.asarray(_fitting(size, crop_pct, interpolation)(to_image(pixels_HWC)))
    return fitted[:, :, None] if fitted.ndim == 2 else fitted


@lru_cache(maxsize=64)
def _fitting(size: Shape, crop_pct: float, interpolation: str) -> Any:
    made = create_transform(size, crop_pct=crop_pct, interpolation=interpolation, normalize=False)
    return Compose(made.transforms[:-1])  # the last makes a tensor


def normalised(batch_BHWC: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(B, C, H, W) float32."""
    x_BCHW = torch.from_numpy(np.ascontiguousarray(batch_BHWC.transpose(0, 3, 1, 2))).float().div_(255)
    return x_BCHW.sub_(torch.tensor(mean).view(-1, 1, 1)).div_(torch.tensor(std).view(-1, 1, 1))


def check_statistics(mean: Sequence[float], std: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    mean, std = tuple(map(float, mean)), tuple(map(float, std))
    if len(mean) not in (1, 3) or len(std) != len(mean) or min(std) <= 0:
        refuse("mean and std have one number a channel, std above zero", (mean, std), "as many as in_chans: 1 or 3")
    return mean, std


def check_interpolation(name: str, *more: str) -> None:
    require_choice("interpolation", name, (*INTERPOLATIONS, *more))


def require_channels(pixels_HWC: np.ndarray, mean: Sequence[float]) -> None:
    if pixels_HWC.shape[2] != len(mean):
        refuse("images and their mean must have as many channels", pixels_HWC.shape[2], len(mean))
