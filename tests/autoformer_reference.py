"""Subnets of the AutoFormer spaces with the logits and DSS scores of the released code, and their weights.

shared/reference/README.md says how the weights are made; data/autoformer_scores.json is its copy.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitruvius import Arch, Block, Patch, Stage

ROWS: dict[str, list[dict[str, Any]]] = json.loads((Path(__file__).parent / "data/autoformer_scores.json").read_text())
SUBNETS = [(space, index) for space, rows in ROWS.items() for index in range(len(rows))]
LARGEST = {"autoformer-tiny": 256, "autoformer-small": 448, "autoformer-base": 640}


def arch_of(row: dict[str, Any]) -> Arch:
    dim = row["embed_dim"]
    blocks = tuple(
        Block(heads=heads, qk=64 * heads, v=64 * heads, mlp=int(dim * ratio))
        for heads, ratio in zip(row["heads"], row["mlp_ratio"], strict=True)
    )
    return Arch(
        family="vit",
        patch=Patch(size=16),
        stages=(Stage(dim=dim, blocks=blocks),),
        positions="absolute+relative",
        class_token=True,
        pool="mean",
        norm_eps=1e-5,
    )


def made(name: str, shape: tuple[int, ...], scale: float = 0.02) -> torch.Tensor:
    noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape) * scale
    return torch.from_numpy(noise.astype(np.float32))


def reference_name(ours: str) -> str:
    for old, new in (
        ("stages.0.", ""),
        ("attn.", ""),
        ("mlp.", ""),
        ("relative_", "rel_"),
        ("_table", ""),
        ("patch_embed", "patch"),
    ):
        ours = ours.replace(old, new)
    return ours


def largest_shape(name: str, most: int) -> tuple[int, ...]:
    """The shape of a tensor of the largest network; embedding, q, k and v are all `most` wide there."""
    if ".rel_" in name:
        return (30, 64)
    shapes = {
        "patch.weight": (most, 3, 16, 16),
        "cls_token": (1, 1, most),
        "pos_embed": (1, 197, most),
        "head.weight": (1000, most),
        "head.bias": (1000,),
        "fc1.weight": (4 * most, most),
        "fc1.bias": (4 * most,),
        "fc2.weight": (most, 4 * most),
        **dict.fromkeys(("q.weight", "k.weight", "v.weight", "proj.weight"), (most, most)),
    }
    return next((shape for part, shape in shapes.items() if name.endswith(part)), (most,))


def reference_weights(ours: dict[str, torch.Tensor], most: int) -> dict[str, torch.Tensor]:
    """The leading rows and columns of every tensor of the largest network."""
    weights = {}
    for key, tensor in ours.items():
        name = reference_name(key)
        if name.endswith((".q.bias", ".k.bias", ".v.bias")):
            weights[key] = torch.zeros_like(tensor)
            continue
        full = made(name, largest_shape(name, most))
        if "norm" in name and name.endswith("weight"):
            full = full + 1.0
        weights[key] = full[tuple(slice(0, size) for size in tensor.shape)]
    return weights
