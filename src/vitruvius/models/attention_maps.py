"""Who looks where: the attention of every block on given images, with the places of queries and keys.

Attention is seen where it is computed (torch's `scaled_dot_product_attention`, or a softmax where a family adds
relative positions), so that no model has a switch for it. Pairs are kept window by window: on a large grid all pairs of
tokens would not fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vitruvius.models._base import Backbone
from vitruvius.models.layers import Grid
from vitruvius.models.swin import WindowAttention

__all__ = ["AttentionMap", "attention_maps"]

Places = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The attention of one block; a mixer without windows has one window, the whole grid."""

    stage: int
    """From 0, as `block` is."""
    block: int
    mixer: str
    grid: Grid
    cell: tuple[float, float]
    """Height and width of a token in pixels."""
    reach: int
    """How many tokens a key stands for, in each direction."""
    weights_BWHNM: Tensor
    """By image, window, head, query and key; over the keys they sum to one."""
    queries_WN2: Places
    """Row and column of each query's centre, in pixels; NaN of a class token and of padding."""
    keys_WM2: Places

    def distances_WNM(self) -> Tensor:
        """Between queries and keys in pixels; NaN where one of them has no place."""
        apart = self.queries_WN2[:, :, None] - self.keys_WM2[:, None]
        return torch.from_numpy(np.sqrt((apart**2).sum(-1)))

    def mean_distance(self) -> list[float]:
        """Of each head: how far it looks, in pixels, averaged by attention, then over queries and images."""
        distances = self.distances_WNM()[:, None]
        has_place = ~distances.isnan()
        weights = self.weights_BWHNM.double() * has_place
        far = (weights * distances.nan_to_num()).sum(-1) / weights.sum(-1)
        counted = has_place.any(-1).expand(far.shape)
        far = far.where(counted, torch.zeros_like(far))
        return (far.sum((0, 1, 3)) / counted.sum((0, 1, 3))).tolist()

    def top_distances(self, k: int) -> list[float]:
        """Of every query that has a place, over images and heads: the mean distance of its k most attended keys.

        This is what S3's Figure 4 (f, g) draws. Fewer keys are taken where a window has no more.
        """
        distances = self.distances_WNM()[:, None].expand(self.weights_BWHNM.shape)
        weights = self.weights_BWHNM.double().masked_fill(distances.isnan(), -1.0)
        best = weights.topk(min(k, weights.shape[-1]), dim=-1)
        taken = distances.gather(-1, best.indices).where(best.values >= 0, torch.nan)
        means = taken.nanmean(-1).flatten()
        return means[~means.isnan()].tolist()

    def seen_from(self, image: int, point: tuple[float, float]) -> NDArray[np.float64]:
        """(H, W): what the query nearest to a pixel attends to, the mean of its heads; a coarse key fills its part."""
        apart = np.nansum((self.queries_WN2 - np.array(point)) ** 2, axis=-1)
        apart[np.isnan(self.queries_WN2[..., 0])] = np.inf
        window, query = np.unravel_index(int(apart.argmin()), apart.shape)
        seen = self.weights_BWHNM[image, window, :, query].double().mean(0).numpy()
        keys = self.keys_WM2[window]
        placed = ~np.isnan(keys[:, 0])
        height, width = self.cell
        reach = self.reach
        found = np.zeros(self.grid)
        for weight, (y, x) in zip(seen[placed], keys[placed], strict=True):
            row, column = round(y / height - reach / 2), round(x / width - reach / 2)
            found[row : row + reach, column : column + reach] = weight
        return found


class _Recorder(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            query, key = args[:2]
            logits = query @ key.transpose(-2, -1) * kwargs["scale"]
            if kwargs.get("attn_mask") is not None:
                logits = logits + kwargs["attn_mask"]
            self.weights.append(logits.softmax(-1))
        elif func is Tensor.softmax:
            self.weights.append(out)
        return out


@torch.no_grad()
def attention_maps(model: Backbone, images_BCHW: Tensor) -> list[AttentionMap]:
    """The attention of every block, in order, as the model in evaluation computes it."""
    training = model.training
    try:
        with _Recorder() as seen:
            model.eval().forward_features(images_BCHW)
    finally:
        model.train(training)
    blocks = list(_blocks(model))
    assert len(blocks) == len(seen.weights)
    return [_map(model, s, b, weights.cpu()) for (s, b), weights in zip(blocks, seen.weights, strict=True)]


def _blocks(model: Backbone) -> Iterator[tuple[int, int]]:
    return ((s, b) for s, stage in enumerate(model.arch.stages) for b in range(len(stage.blocks)))


def _map(model: Backbone, s: int, b: int, weights: Tensor) -> AttentionMap:
    block, grid = model.arch.stages[s].blocks[b], model.grids[s]
    centres = _centres(grid, model.img_size)
    match block.mixer:
        case "window" | "shifted":
            attention: Any = model.stages[s].blocks[b].attn
            assert isinstance(attention, WindowAttention)
            rolled = np.roll(centres, [-shift for shift in attention.shift], (0, 1))
            queries = keys = _windows(rolled, attention.window)
        case "local":
            assert block.window is not None
            queries = keys = _windows(centres, (block.window, block.window))
        case "subsampled":
            assert block.reduction is not None
            coarse = (grid[0] // block.reduction, grid[1] // block.reduction)
            queries = centres.reshape(1, -1, 2)
            keys = _subsampled(centres, block.reduction, coarse)
        case _:
            prefix = np.full((model.num_prefix_tokens, 2), np.nan)
            queries = keys = np.concatenate([prefix, centres.reshape(-1, 2)])[None]
    cell = (model.img_size[0] / grid[0], model.img_size[1] / grid[1])
    # Windows and heads share the second dimension where there are windows.
    by_window = weights.unflatten(1, (len(queries), block.heads))
    return AttentionMap(s, b, block.mixer, grid, cell, block.reduction or 1, by_window, queries, keys)


def _centres(grid: Grid, img_size: tuple[int, int]) -> Places:
    """(H, W, 2): the middle of each token's part of the image."""
    sides = ((np.arange(n) + 0.5) * pixels / n for n, pixels in zip(grid, img_size, strict=True))
    return np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1)


def _windows(places_HW2: Places, window: Grid) -> Places:
    """(W, N, 2): the places window by window; what pads the last ones has none."""
    missing = [(0, -side % extent) for side, extent in zip(places_HW2.shape[:2], window, strict=True)]
    padded = np.pad(places_HW2, (*missing, (0, 0)), constant_values=np.nan)
    rows, columns = (side // extent for side, extent in zip(padded.shape[:2], window, strict=True))
    tiles = padded.reshape(rows, window[0], columns, window[1], 2).transpose(0, 2, 1, 3, 4)
    return tiles.reshape(rows * columns, window[0] * window[1], 2)


def _subsampled(centres_HW2: Places, reduction: int, coarse: Grid) -> Places:
    """(1, M, 2): the middle of each group of tokens."""
    kept = centres_HW2[: coarse[0] * reduction, : coarse[1] * reduction]
    return kept.reshape(coarse[0], reduction, coarse[1], reduction, 2).mean((1, 3)).reshape(1, -1, 2)
