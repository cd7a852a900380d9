"""Drawings of architectures: per block how wide attention and MLP are, how many heads, which window.

`drawing` is what both renderers draw: the page's script, and matplotlib for files. A block is a row: queries, keys and
values together to the left of the middle, in as many parts as there are heads, the MLP to the right, and behind both
the width of the stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitruvius.arch import Arch, ImageSize, token_grids
from vitruvius.files import replace_file

__all__ = ["MIXER_COLORS", "draw_png", "drawing"]

MIXER_COLORS = {
    "global": "#0072b2",
    "window": "#e69f00",
    "shifted": "#d55e00",
    "local": "#009e73",
    "subsampled": "#cc79a7",
    "mlp": "#7f8c9b",
}
"""Apart for colour-blind people too (Okabe and Ito's palette)."""


def drawing(arch: Arch, img_size: ImageSize) -> dict[str, Any]:
    """Plain data: stages with their blocks as [mixer, heads, width of q, k and v, MLP width, window or reduction]."""
    grids = token_grids(arch, img_size)
    return {
        "id": arch.id,
        "patch": arch.patch.size,
        "stages": [
            {
                "dim": stage.dim,
                "grid": f"{grid[0]}×{grid[1]}",
                "blocks": [
                    [block.mixer, block.heads, 2 * block.qk + block.v, block.mlp, block.window or block.reduction]
                    for block in stage.blocks
                ],
            }
            for stage, grid in zip(arch.stages, grids, strict=True)
        ],
    }


def draw_png(path: Path, drawings: Mapping[str, tuple[dict[str, Any], str]]) -> None:
    """Several architectures side by side, to one scale, each with a line under its name."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle

    stages = [stage for drawn, _ in drawings.values() for stage in drawn["stages"]]
    widest = max(max([stage["dim"], *(max(block[2:4]) for block in stage["blocks"])]) for stage in stages)
    rows = max(sum(1 + len(stage["blocks"]) for stage in drawn["stages"]) for drawn, _ in drawings.values())
    figure = Figure(figsize=(4.2 * len(drawings), 0.24 * rows + 1.4), dpi=150, layout="constrained")
    axes = figure.subplots(1, len(drawings), squeeze=False)[0]
    mixers = {}
    for ax, (name, (drawn, note)) in zip(axes, drawings.items(), strict=True):
        ax.set(xlim=(-1.18 * widest, 1.18 * widest), ylim=(rows + 0.2, -0.2))
        ax.set_title(f"{name}\n{note}", fontsize=9)
        ax.axis("off")
        y = 0.0
        for index, stage in enumerate(drawn["stages"], start=1):
            text = f"stage {index}: width {stage['dim']}, {stage['grid']} tokens"
            ax.text(0, y + 0.5, text, ha="center", va="center", fontsize=7, color="0.35")
            y += 1
            for mixer, heads, qkv, mlp, reach in stage["blocks"]:
                mixers[mixer] = None
                gap = 0.13 * widest
                dim = stage["dim"]
                for left in (-gap - dim, gap):
                    ax.add_patch(Rectangle((left, y + 0.02), dim, 0.96, color="0.93", lw=0))
                for head in range(heads):
                    color = MIXER_COLORS[mixer]
                    place = (-gap - qkv * (head + 1) / heads, y + 0.15)
                    ax.add_patch(Rectangle(place, qkv / heads, 0.7, fc=color, ec="white", lw=0.6))
                ax.add_patch(Rectangle((gap, y + 0.15), mlp, 0.7, fc=MIXER_COLORS["mlp"], lw=0))
                for x in (-gap - dim, gap + dim):
                    ax.plot([x, x], [y + 0.02, y + 0.98], color="0.1", lw=0.7)
                label = f"{heads}" if reach is None else f"{heads}·{reach}"
                ax.text(0, y + 0.52, label, ha="center", va="center", fontsize=6.5)
                y += 1
    shown = [*mixers, "mlp"]
    patches = [Patch(color=MIXER_COLORS[name], label="MLP" if name == "mlp" else name) for name in shown]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), fontsize=7, frameon=False)
    replace_file(path, lambda partial: figure.savefig(partial, format="png"))
