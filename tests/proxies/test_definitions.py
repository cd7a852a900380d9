"""Each proxy against an independent computation of its definition."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, jacrev

import vitruvius as vt
from conftest import NANO_SPACES, some_archs
from vitruvius import Arch, spaces
from vitruvius.proxies import Candidate, Setting, Trace, te_nas
from vitruvius.proxies._candidate import _agreement, network
from vitruvius.proxies.az_nas import _entropy, rank_sum
from vitruvius.proxies.te_nas import tangent_kernel

SETTING = Setting(img_size=16, num_classes=5, in_chans=2, batch_size=4, seed=3)
OPTIONS = {"img_size": 16, "num_classes": 5, "in_chans": 2, "batch_size": 4, "seed": 3}
ALL = pytest.mark.parametrize("name", NANO_SPACES)


def one(name: str, which: int = 2) -> Arch:
    """The smallest, the largest or a random one."""
    patch = 2 if name in ("s3-nano", "vitas-twins-nano") else 4
    return some_archs(spaces.load(name, img_size=16, patch=patch), 3)[which]


def fresh(arch: Arch) -> nn.Module:
    return network(arch, SETTING)


def matrices(model: nn.Module) -> dict[str, Tensor]:
    """Weights that multiply: two dimensions or four, and no table or token."""
    return {
        name: p
        for name, p in model.named_parameters()
        if name.endswith(".weight") and p.ndim in (2, 4) and "table" not in name
    }


def loss(model: nn.Module) -> Tensor:
    return F.cross_entropy(model(SETTING.images), SETTING.labels)


@ALL
def test_snip(name: str) -> None:
    model = fresh(one(name))
    loss(model).backward()
    expected = sum((p * p.grad).abs().sum().item() for p in matrices(model).values())
    assert vt.proxies.score("snip", one(name), **OPTIONS) == pytest.approx(expected, rel=1e-5)


@ALL
def test_grad_norm(name: str) -> None:
    model = fresh(one(name))
    loss(model).backward()
    expected = sum(p.grad.square().sum().sqrt().item() for p in matrices(model).values())
    assert vt.proxies.score("grad_norm", one(name), **OPTIONS) == pytest.approx(expected, rel=1e-5)


@ALL
def test_grasp_by_the_difference_of_two_gradients(name: str) -> None:
    """H g is how the gradient changes along g: in float64, by a central difference."""
    model = fresh(one(name)).double()
    weights = matrices(model)

    def gradient(step: float, way: dict[str, Tensor]) -> dict[str, Tensor]:
        moved = {n: (p + step * way[n]).detach().requires_grad_() for n, p in weights.items()}
        logits = functional_call(model, moved, (SETTING.images.double(),))
        value = F.cross_entropy(logits, SETTING.labels)
        found = torch.autograd.grad(value, list(moved.values()), materialize_grads=True)
        return dict(zip(moved, found, strict=True))

    g = gradient(0.0, {n: torch.zeros_like(p) for n, p in weights.items()})
    ahead, behind = gradient(1e-4, g), gradient(-1e-4, g)
    expected = -sum((p * (ahead[n] - behind[n]) / 2e-4).sum().item() for n, p in weights.items())
    assert vt.proxies.score("grasp", one(name), **OPTIONS) == pytest.approx(expected, rel=2e-3)


@ALL
def test_fisher_channel_by_channel(name: str) -> None:
    model = fresh(one(name))
    outputs = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        output.retain_grad()
        outputs.append((isinstance(module, nn.Conv2d), output))

    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            module.register_forward_hook(keep)
    loss(model).backward()
    total = 0.0
    for conv, output in outputs:
        if output.grad is None:
            continue
        products = (output * output.grad).detach().numpy().astype(np.float64)
        if conv:
            products = np.moveaxis(products, 1, -1)
        for image in products.reshape(4, -1, products.shape[-1]):
            total += sum(image[:, channel].sum() ** 2 for channel in range(image.shape[1])) / 2 / 4
    assert vt.proxies.score("fisher", one(name), **OPTIONS) == pytest.approx(total, rel=1e-4)


class Passing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


@ALL
def test_synflow_with_modules_replaced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The linear network made another way: norms replaced by modules that pass on, and not by intercepting calls."""
    model = fresh(one(name)).double()
    for module in list(model.modules()):
        for child, value in module.named_children():
            if isinstance(value, nn.LayerNorm | nn.BatchNorm2d | nn.ReLU):
                setattr(module, child, Passing())
    for place, parameter in model.named_parameters():
        dead = any(part in place for part in (".attn.q.", ".attn.k.", "relative_k", "bias_table"))
        parameter.data = torch.zeros_like(parameter) if dead else parameter.data.abs()
    monkeypatch.setattr(F, "gelu", lambda x: x)
    flow = model(torch.ones(1, 2, 16, 16, dtype=torch.float64)).sum()
    flow.backward()
    expected = sum((p * p.grad).sum().item() for p in matrices(model).values() if p.grad is not None)
    assert flow > 0
    assert vt.proxies.score("synflow", one(name), **OPTIONS) == pytest.approx(expected, rel=1e-9)


def test_synflow_by_hand() -> None:
    """DeiT's equations with everything positive and linear, from the parameters alone."""
    arch = one("vitas-nano")
    p = {n: v.detach().double().abs().requires_grad_() for n, v in fresh(arch).named_parameters()}
    size = arch.patch.size
    x = F.conv2d(torch.ones(1, 2, 16, 16).double(), p["patch_embed.weight"], p["patch_embed.bias"], size)
    x = torch.cat([p["cls_token"][0], x.flatten(2)[0].T]) + p["pos_embed"][0]
    for b in range(arch.depth):
        block = {
            n.removeprefix(f"stages.0.blocks.{b}."): v for n, v in p.items() if n.startswith(f"stages.0.blocks.{b}.")
        }
        v = x @ block["attn.v.weight"].T + block["attn.v.bias"]
        x = x + v.mean(dim=0, keepdim=True) @ block["attn.proj.weight"].T + block["attn.proj.bias"]
        h = x @ block["mlp.fc1.weight"].T + block["mlp.fc1.bias"]
        x = x + h @ block["mlp.fc2.weight"].T + block["mlp.fc2.bias"]
    flow = (x[0] @ p["head.weight"].T + p["head.bias"]).sum()
    weights = [v for n, v in p.items() if v.ndim > 1 and n.endswith("weight")]
    gradients = torch.autograd.grad(flow, weights, materialize_grads=True)
    expected = sum((w * g).sum().item() for w, g in zip(weights, gradients, strict=True))
    assert vt.proxies.score("synflow", arch, **OPTIONS) == pytest.approx(expected, rel=1e-9)


def test_naswot_kernel_on_a_toy() -> None:
    units = {"a": torch.tensor([[1.0, -1.0], [1.0, 2.0], [-3.0, -1.0]]), "b": torch.tensor([[[0.5]], [[0.5]], [[0.0]]])}
    kernel = _agreement(Trace(logits=torch.empty(3, 1), units=units))
    assert kernel.tolist() == [[3, 2, 1], [2, 3, 0], [1, 0, 3]]


@ALL
def test_naswot_and_regions_unit_by_unit(name: str) -> None:
    model = fresh(one(name))
    codes: list[np.ndarray] = []
    for place, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            module.register_forward_hook(lambda _, inputs, __: codes.append((inputs[0] > 0).numpy().reshape(4, -1)))
        if place.endswith("mlp.fc1"):
            module.register_forward_hook(lambda _, __, out: codes.append((out > 0).detach().numpy().reshape(4, -1)))
    with torch.no_grad():
        model(SETTING.images)
    bits = np.concatenate(codes, axis=1)
    kernel = np.array([[(a == b).sum() for b in bits] for a in bits], dtype=np.float64)
    expected = math.log(abs(np.linalg.det(kernel)))
    assert vt.proxies.score("naswot", one(name), **OPTIONS) == pytest.approx(expected, rel=1e-9)
    assert len({tuple(row) for row in bits}) == 4, "TE-NAS's count is not all of the images: use it"
    crossed = np.mean([1 + (a != b).sum() for a, b in pairwise(bits)])
    candidate = Candidate(one(name), SETTING, frozenset({"units"}), 1)
    assert te_nas.TeNas().of(candidate)["te_nas.regions"] == pytest.approx(math.log(crossed))


@ALL
def test_tangent_kernel_against_torch_func(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arch = one(name, 0)
    model = fresh(arch)
    weights = {n: p.detach() for n, p in matrices(model).items()}
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        rows = jacrev(lambda w: functional_call(model, w, (SETTING.images,)).sum(1))(weights)
    jacobian = torch.cat([rows[n].flatten(1) for n in weights], dim=1).double()
    expected = jacobian @ jacobian.T
    torch.testing.assert_close(tangent_kernel(Candidate(arch, SETTING)), expected, rtol=1e-4, atol=1e-4)
    values = np.linalg.eigvalsh(tangent_kernel(Candidate(arch, SETTING)).numpy())
    candidate = Candidate(arch, SETTING, frozenset({"units"}), 1)
    parts = te_nas.TeNas().of(candidate)
    assert parts["te_nas.ntk"] == pytest.approx(-math.log(values[-1] / values[0]))
    monkeypatch.setattr(te_nas, "_MEMORY", 4 * 4 * jacobian.shape[1] // 3)  # several passes
    torch.testing.assert_close(tangent_kernel(Candidate(arch, SETTING)), expected, rtol=1e-4, atol=1e-4)
    score = vt.proxies.score("te_nas", arch, **OPTIONS)
    assert score == pytest.approx(sum(parts.values()))


def without_blocks(family: str) -> Arch:
    data = one({"vit": "vitas-nano", "swin": "s3-nano"}[family]).to_dict()
    data["stages"] = [{"dim": stage["dim"], "blocks": []} for stage in data["stages"]]
    return Arch.from_dict(data)


def test_zen_of_a_network_without_blocks() -> None:
    """Then the features move as the patch embedding moves them."""
    arch = without_blocks("vit")
    weight = network(arch, SETTING, "normal").patch_embed.weight
    noise = SETTING.random.normal("zen.noise", (4, 2, 16, 16))
    moved = F.conv2d(noise.double(), weight.detach().double(), stride=arch.patch.size).flatten(1).norm(dim=1).mean()
    assert vt.proxies.score("zen", arch, **OPTIONS) == pytest.approx(math.log(moved), rel=1e-5)


def test_zen_puts_the_trunks_scale_back() -> None:
    """Weights before a norm on the trunk that are larger by a factor make the score larger by its logarithm."""
    from vitruvius.proxies.zen import _features

    model = network(without_blocks("swin"), SETTING, "normal")
    with torch.no_grad():
        here, before = _features(model, SETTING.images)
        model.patch_embed.weight.mul_(7)
        there, after = _features(model, SETTING.images)
    torch.testing.assert_close(here, there, rtol=1e-3, atol=1e-3)
    assert float(after - before) == pytest.approx(math.log(7), rel=1e-3)


def test_entropy_of_features() -> None:
    rows = torch.randn(1, 40000, 8, generator=torch.Generator().manual_seed(0))
    assert float(_entropy(rows)) == pytest.approx(math.log(8), abs=1e-3)
    assert float(_entropy(rows[..., :1] * torch.ones(8))) == pytest.approx(0, abs=1e-6)


@ALL
def test_az_nas_parts(name: str) -> None:
    arch = one(name)
    candidate = Candidate(arch, SETTING, frozenset({"blocks"}), 1)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        parts = vt.proxies.PROXIES["az_nas"].of(candidate)
    entropies, flows = [], []
    for place, (before, after) in enumerate(candidate.trace.blocks):
        rows = after.detach().flatten(0, 1).numpy().astype(np.float64)
        values = np.linalg.svd(rows - rows.mean(0), compute_uv=False) ** 2
        shares = values / values.sum()
        entropies.append(-(shares * np.log(np.maximum(shares, 1e-300))).sum())
        signs = np.where(SETTING.random.uniform(f"az_nas.{place}", tuple(after.shape)).numpy() < 0, -1.0, 1.0)
        (g,) = torch.autograd.grad((after * torch.from_numpy(signs)).sum(), before, retain_graph=True)
        rows_in, rows_out = g.flatten(0, 1).numpy().astype(np.float64), signs.reshape(-1, signs.shape[-1])
        norm = np.linalg.norm(sum(np.outer(a, b) for a, b in zip(rows_in, rows_out, strict=True)) / len(rows_in), 2)
        flows.append(2 - norm - 1 / norm)
    assert len(entropies) == arch.depth
    assert parts["az_nas.expressivity"] == pytest.approx(sum(entropies), rel=1e-5)
    assert parts["az_nas.progressivity"] == pytest.approx(min(b - a for a, b in pairwise(entropies)), abs=1e-5)
    assert parts["az_nas.trainability"] == pytest.approx(np.mean(flows), abs=1e-4)
    assert parts["az_nas.complexity"] == vt.costs.macs(arch, img_size=16, num_classes=5, in_chans=2)


def test_rank_sum() -> None:
    first, second = np.array([3.0, 1.0, 2.0, math.nan]), np.array([10.0, 10.0, 30.0, 5.0])
    logs = [math.log(3 / 3) + math.log(1.5 / 3), math.log(1 / 3) + math.log(1.5 / 3), math.log(2 / 3)]
    np.testing.assert_allclose(rank_sum([first, second]), [*logs, math.nan])
    assert np.isnan(rank_sum([np.array([math.nan])])).all()


def test_az_nas_depends_on_the_set_and_its_parts_do_not() -> None:
    archs = some_archs(spaces.load("autoformer-nano", img_size=16, patch=4), 4)
    whole = vt.proxies.score("az_nas", archs, **OPTIONS)
    assert vt.proxies.score("az_nas", archs[:2], **OPTIONS) != whole[:2]
    assert vt.proxies.score("az_nas", archs[0], **OPTIONS) == 0  # the first of one
