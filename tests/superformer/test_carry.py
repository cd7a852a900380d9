from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import NANO_SPACES
from vitruvius import Space, Superformer, spaces
from vitruvius.superformer import carry

OPTIONS = {"num_classes": 5, "in_chans": 1}


def made(space: Space, seed: int, sharing: str = "ordinal", private: tuple[str, ...] = ()) -> Superformer:
    found = Superformer(space, seed=seed, sharing=sharing, private=private, **OPTIONS).eval()
    with torch.no_grad():  # so that no two parameters are alike
        for parameter in found.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)) * 0.1)
    return found


def logits(superformer: Superformer, arch: object) -> torch.Tensor:
    size = superformer.img_size
    x = torch.randn(2, 1, *size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return superformer(x, arch)


@pytest.mark.parametrize("name", NANO_SPACES)
def test_into_an_equal_space_everything_is_carried(name: str, rng: np.random.Generator) -> None:
    space = spaces.load(name)
    for sharing, private in (("ordinal", ()), ("cyclic", ("class_token", "qk"))):
        old, new = made(space, 1, sharing, private), made(space, 2, sharing, private)
        found = carry(old, new)
        assert (found.tensors, found.numbers) == (found.of_tensors, found.of_numbers)
        for (_, ours), theirs in zip(new.state_dict().items(), old.state_dict().values(), strict=True):
            assert torch.equal(ours, theirs)


def test_networks_of_both_spaces_compute_the_same() -> None:
    """Ordinal sharing: what a network reads are the first channels, which are carried whatever the space moves by."""
    old_space = spaces.load("s3-nano")
    new_space = old_space
    for dimension, step in (("stage1.dim", 8), ("stage2.qkv", 16), ("stage3.mlp_ratio", 1), ("stage2.depth", 1)):
        new_space = new_space.moved(dimension, step)
    new_space = new_space.with_choices("stage1.window", (2,))
    old, new = made(old_space, 1), made(new_space, 2)
    shared = [
        arch for arch in (old_space.sample(np.random.default_rng(i)) for i in range(400)) if new_space.contains(arch)
    ]
    assert len(shared) >= 3
    before = [logits(new, arch) for arch in shared[:5]]
    found = carry(old, new)
    assert 0 < found.numbers < found.of_numbers
    for arch, earlier in zip(shared[:5], before, strict=True):
        assert torch.allclose(logits(new, arch), logits(old, arch), atol=1e-6)
        assert not torch.allclose(logits(new, arch), earlier, atol=1e-3)


def test_by_the_cyclic_rule_the_largest_common_width_is_carried() -> None:
    old_space = spaces.load("vitas-nano")
    new_space = old_space.moved("stage1.dim", 16).moved("stage1.mlp", 32)  # 48, 64, 80 and 64, ..., 160
    old, new = made(old_space, 1, "cyclic"), made(new_space, 2, "cyclic")
    carry(old, new)
    widest = [
        old_space.with_choices("stage1.dim", (64,)).with_choices("stage1.mlp", (128,)).sample(np.random.default_rng(i))
        for i in range(4)
    ]
    for arch in widest:
        assert torch.allclose(logits(new, arch), logits(old, arch), atol=1e-6)


def test_what_is_new_stays_as_it_was_made() -> None:
    old_space = spaces.load("autoformer-nano")
    new_space = old_space.moved("stage1.dim", 16).moved("stage1.depth", 1)
    old, new, fresh = made(old_space, 1), made(new_space, 2), made(new_space, 2)
    carry(old, new)
    name = "stages/0/blocks/0/mlp/fc1/weight"
    [name] = [n for n in new.shared if n.endswith("blocks/0/fc1/weight") or n == name]
    rows, columns = old.shared[name].shape
    assert torch.equal(new.shared[name][:rows, :columns], old.shared[name])
    assert torch.equal(new.shared[name][rows:], fresh.shared[name][rows:])
    assert torch.equal(new.shared[name][:, columns:], fresh.shared[name][:, columns:])
    last = [n for n in new.shared if n.startswith("stages/0/blocks/6/")]
    assert last
    assert all(torch.equal(new.shared[n], fresh.shared[n]) for n in last)


def test_rules_must_agree() -> None:
    space = spaces.load("autoformer-nano")
    with pytest.raises(ValueError, match="one sharing rule"):
        carry(made(space, 1, "ordinal"), made(space, 2, "cyclic"))
