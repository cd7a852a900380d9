"""The names that users type, and what must not come with them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import vitruvius as vt

TORCH_FREE = ("arch", "arrays", "registry", "files", "costs", "spaces", "zoo", "recipes", "cli")


def test_the_torch_free_rooms_import_no_torch() -> None:
    """In a process of its own: here torch is imported already."""
    imports = "; ".join(f"import vitruvius.{room}" for room in TORCH_FREE)
    heavy = "[name for name in ('torch', 'timm', 'torchvision') if name in sys.modules]"
    code = f"import sys; {imports}; vitruvius.spaces.load('s3').largest; print({heavy})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_public_face() -> None:
    rng = np.random.default_rng(0)
    space = vt.spaces.load("vitas-nano")
    arch = space.sample(rng)
    assert isinstance(arch, vt.Arch)
    assert vt.Space.from_yaml(space.to_yaml()) == space
    assert vt.Arch.from_json(vt.zoo.load("s3-tiny").to_json()) == vt.zoo.load("s3-tiny")
    assert vt.costs.params(arch, num_classes=10, img_size=32) == sum(
        parameter.numel() for parameter in vt.build(arch, num_classes=10, img_size=32).parameters()
    )
    assert vt.costs.macs([arch, arch], img_size=32).shape == (2,)
    superformer = vt.Superformer(space, sharing="cyclic", num_classes=10)
    assert type(superformer.extract(arch)) is vt.models.ViT
    assert all(hasattr(vt, name) for name in vt.__all__)


def test_rooms_are_there_without_their_own_import() -> None:
    for room in ("recipes", "models", "superformer", "data", "testing"):
        assert getattr(vt, room).__name__ == f"vitruvius.{room}"
    for name in ("nothing", "_private"):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
            getattr(vt, name)
