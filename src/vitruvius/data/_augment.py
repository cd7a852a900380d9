"""Augmentation as a function of pixels and keys.

Crops by padding and flips draw numbers of their own (`_keys.uniforms`); timm's and torchvision's transforms draw from
global generators, which are lent to them, seeded by each sample's key. So a sample is the same alone and in any batch,
in any process, and on either of the two ways: whole batches of arrays in memory, or one PIL image after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
import torch
from timm.data import create_transform
from torch import Tensor

from vitruvius.arch import ImageSize, image_shape, refuse, require_choice
from vitruvius.data._decode import to_image
from vitruvius.data._fit import check_interpolation, check_statistics, fit, normalised, require_channels
from vitruvius.data._images import MEMORY, Images, Indices, MemoryImages
from vitruvius.data._keys import hashes, lent_generators, uniforms

Crop = Literal["resized", "padded", "none"]
_ROW, _COLUMN, _HFLIP, _VFLIP = range(4)


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Settings named as timm names them; without any, images are fitted to their size and normalised.

    crop: "resized", a random part of random shape (`scale` of the area, `ratio` of the sides); "padded", shifted by up
        to `padding` pixels over a black border; "none".
    color_jitter: one strength, or those of brightness, contrast, saturation (and hue). As in timm, `auto_augment`
        takes its place.
    """

    img_size: ImageSize
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: Crop = "none"
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    padding: int | None = None
    """An eighth of the shorter side unless said otherwise: 4 pixels of 32."""
    hflip: float = 0.0
    vflip: float = 0.0
    color_jitter: float | tuple[float, ...] | None = None
    auto_augment: str | None = None
    re_prob: float = 0.0
    re_mode: str = "pixel"
    re_count: int = 1
    interpolation: str = "bicubic"

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "img_size", image_shape(self.img_size))
        mean, std = check_statistics(self.mean, self.std)
        put(self, "mean", mean)
        put(self, "std", std)
        require_choice("crop", self.crop, get_args(Crop))
        check_interpolation(self.interpolation, *(["random"] if self.crop == "resized" else []))
        require_choice("re_mode", self.re_mode, ("const", "rand", "pixel"))
        for name in ("hflip", "vflip", "re_prob"):
            if not 0 <= getattr(self, name) <= 1:
                refuse(f"{name} must be a probability", getattr(self, name), "0 to 1")
        for name, most in (("scale", 1.0), ("ratio", float("inf"))):
            low, high = put_pair(self, name)
            if not 0 < low <= high <= most:
                refuse(f"{name} must be a range", (low, high), f"low up to high, above 0, up to {most}")
        if self.padding is None:
            put(self, "padding", min(self.shape) // 8 if self.crop == "padded" else 0)
        if type(self.padding) is not int or self.padding < 0 or (self.padding and self.crop != "padded"):
            refuse("padding is a number of pixels, of crop 'padded'", self.padding, "0 or more")
        if type(self.re_count) is not int or self.re_count < 1:
            refuse("re_count must be a whole number", self.re_count, "1 or more")
        if isinstance(self.color_jitter, list | tuple):
            put(self, "color_jitter", tuple(map(float, self.color_jitter)))
            if len(self.color_jitter) not in (3, 4):
                refuse("color_jitter has a strength, or three or four", self.color_jitter, "0.4, say")
        try:
            _pieces(self)
        except Exception as error:  # timm answers a bad policy with whatever comes up first
            known = "rand-m9-mstd0.5-inc1, augmix-m3-w3, v0, original, 3a, ..."
            why = str(error) or type(error).__name__
            refuse(f"timm takes other augmentations ({why})", (self.auto_augment, self.color_jitter), known)

    @property
    def shape(self) -> tuple[int, int]:
        return image_shape(self.img_size)

    @property
    def weak(self) -> bool:
        """Whether nothing needs PIL once images are of their size."""
        return self.crop != "resized" and not (self.color_jitter or self.auto_augment or self.re_prob)

    def __call__(self, images: Images, indices: Indices, keys: Sequence[tuple[int, ...]]) -> Tensor:
        """(B, C, H, W) float32, normalised. All that is random of sample i comes from keys[i]."""
        if len(indices) != len(keys):
            refuse("every sample has a key", len(keys), len(indices))
        if not len(indices):
            return torch.empty(0, len(self.mean), *self.shape)
        numbers = uniforms(keys, 4)  # drawn whether needed or not: bad keys are refused by every augmentation
        if self.weak:
            batch = self._fitted(images, indices)
            require_channels(batch[0], self.mean)
            return normalised(self._shifted(batch, numbers), self.mean, self.std)
        samples = []
        with lent_generators() as seed:
            for pixels, word, drawn in zip(images.pixels(indices), hashes(keys).tolist(), numbers, strict=True):
                require_channels(pixels, self.mean)
                seed(word)
                samples.append(self._one(pixels, drawn))
        return torch.stack(samples)

    def prepare(self, images: Images, memory: int = MEMORY) -> Images:
        """The images in memory at their final size, where that changes no result and fits: then calls only copy."""
        height, width = self.shape
        size = len(images) * height * width * len(self.mean)
        if self.crop == "resized" or not images.in_memory or size > memory:
            return images
        if isinstance(images, MemoryImages) and images.array.shape[1:3] == self.shape:
            return images
        return MemoryImages(self._fitted(images, range(len(images))), images.labels)

    def _fitted(self, images: Images, indices: Indices) -> np.ndarray:
        """(B, H, W, C) uint8 at the final size."""
        if isinstance(images, MemoryImages) and images.array.shape[1:3] == self.shape:
            return images.array[np.asarray(indices, dtype=np.int64)]
        return np.stack([fit(pixels, self.shape, 1.0, self.interpolation) for pixels in images.pixels(indices)])

    def _shifted(self, batch_BHWC: np.ndarray, numbers_B4: np.ndarray) -> np.ndarray:
        """Moved by up to `padding` pixels, black coming in, and flipped."""
        assert self.padding is not None
        if not (self.padding or self.hflip or self.vflip):
            return batch_BHWC
        height, width = self.shape
        steps = (numbers_B4[:, [_ROW, _COLUMN]] * (2 * self.padding + 1)).astype(np.int64)
        flips = numbers_B4[:, [_VFLIP, _HFLIP]] < (self.vflip, self.hflip)
        edge = (self.padding, self.padding)
        padded = np.pad(batch_BHWC, ((0, 0), edge, edge, (0, 0))) if self.padding else batch_BHWC
        out = np.empty_like(batch_BHWC)
        for i, ((y, x), (over, across)) in enumerate(zip(steps.tolist(), flips.tolist(), strict=True)):
            part = padded[i, y : y + height, x : x + width]
            out[i] = part[:: -1 if over else 1, :: -1 if across else 1]
        return out

    def _one(self, pixels_HWC: np.ndarray, numbers_4: np.ndarray) -> Tensor:
        """One sample by PIL; the global generators stand at its key."""
        crop, colours, finish = _pieces(self)
        if self.crop == "resized":
            pixels_HWC = np.asarray(crop(to_image(pixels_HWC)))
            pixels_HWC = pixels_HWC[:, :, None] if pixels_HWC.ndim == 2 else pixels_HWC
        else:
            pixels_HWC = fit(pixels_HWC, self.shape, 1.0, self.interpolation)
        image = to_image(np.ascontiguousarray(self._shifted(pixels_HWC[None], numbers_4[None])[0]))
        made: Tensor = finish(colours(image))
        return made


def put_pair(augment: Augment, name: str) -> tuple[float, float]:
    """A range of settings as a pair of floats, in its place."""
    value = getattr(augment, name)
    if not isinstance(value, list | tuple) or len(value) != 2:
        refuse(f"{name} must be a range", value, "two numbers, low and high")
    pair = (float(value[0]), float(value[1]))
    object.__setattr__(augment, name, pair)
    return pair


@lru_cache(maxsize=16)
def _pieces(augment: Augment) -> tuple[Any, Any, Any]:
    """timm's three parts: crop, colours, tensor and erasing. Flips are ours, so that both ways flip alike."""
    made: tuple[Any, Any, Any] = create_transform(
        augment.img_size,
        is_training=True,
        scale=augment.scale,
        ratio=augment.ratio,
        hflip=0.0,
        vflip=0.0,
        color_jitter=augment.color_jitter or None,
        auto_augment=augment.auto_augment,
        interpolation=augment.interpolation,
        mean=augment.mean,
        std=augment.std,
        re_prob=augment.re_prob,
        re_mode=augment.re_mode,
        re_count=augment.re_count,
        separate=True,
    )
    return made
