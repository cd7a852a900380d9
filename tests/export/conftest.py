"""What the tests of export share: small networks of every family, and a finished run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vitruvius import Arch, Block, build, spaces

SIZE = 32


def small(name: str) -> Arch:
    """The largest of a nano space, two blocks in the first stage and one in the others: what its family has, and little
    of it."""
    arch = spaces.load(name).largest
    stages = (replace(stage, blocks=stage.blocks[: 1 if s else 2]) for s, stage in enumerate(arch.stages))
    return replace(arch, stages=tuple(stages))


def padded_twins() -> Arch:
    """Windows of 5 on grids of 16 and 8: zeros fill the last ones."""
    arch = small("vitas-twins-nano")
    local = Block(mixer="local", heads=2, qk=32, v=32, mlp=64, window=5)
    return replace(arch, stages=tuple(replace(stage, blocks=(local, *stage.blocks[:1])) for stage in arch.stages))


def shifted_swin() -> Arch:
    """Windows of 4 on a grid of 16: the second block's shift."""
    arch = small("s3-nano")
    assert any(block.mixer == "shifted" for stage in arch.stages for block in stage.blocks)
    return arch


FAMILIES = {
    "vit": small("vitas-nano"),
    "vit, relative": small("autoformer-nano"),
    "pit": small("pit-nano"),
    "swin": shifted_swin(),
    "twins": padded_twins(),
    "resvit": small("vit-resnas-nano"),
}


def images(count: int, channels: int = 3, size: int = SIZE) -> Tensor:
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(count))


def shaken(model: torch.nn.Module, seed: int = 0) -> Any:
    """Weights and statistics from which a wrong one would show: no zeros, no ones."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                noise = torch.randn(tensor.shape, generator=generator)
                tensor.copy_(noise.abs() + 0.5 if name.endswith("running_var") else noise * 0.1)
    return model.eval()


def network(family: str = "swin", **options: Any) -> Any:
    return shaken(build(FAMILIES[family], num_classes=7, img_size=SIZE, **options))


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on the digits, with a token head that nothing must carry out."""
    from vitruvius.training import RetrainConfig, read_config, train

    arch = spaces.load("autoformer-nano", img_size=8, patch=4).smallest
    settings = {"arch": arch.to_json(), "img_size": 8, "epochs": 1, "batch_size": 256, "device": "cpu", "val": 0.2}
    folder = tmp_path_factory.mktemp("runs") / "first"
    train(read_config(RetrainConfig, settings | {"token_labeling": "cutmix", "cutmix": 1.0}), folder, quiet=True)
    return folder
