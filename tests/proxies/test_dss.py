"""DSS: the released code's scores, what is fast against what is exact, and the parts that both are made of."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau
from torch import Tensor, nn

import vitruvius as vt
from autoformer_reference import LARGEST, ROWS, SUBNETS, arch_of, reference_weights
from conftest import NANO_SPACES, some_archs
from vitruvius import spaces
from vitruvius.models import build
from vitruvius.proxies import Setting
from vitruvius.proxies._candidate import network, steady
from vitruvius.proxies._dss_exact import PAPER, RELEASED, Variant, exact_score
from vitruvius.proxies._dss_norms import NuclearNorms, nuclear_of_products, nuclear_of_rank
from vitruvius.proxies.dss import admits, exact, fast

VARIANTS = {"dss": PAPER, "dss-reference": RELEASED}
BOTH = pytest.mark.parametrize("variant", VARIANTS.values(), ids=list(VARIANTS))


def reference_tensors(most: int):
    """The released scores' weights, as collapsed networks ask for them."""

    @functools.cache
    def widest(name: str, ndim: int) -> Tensor:
        return reference_weights({name: torch.empty((4096,) * ndim, device="meta")}, most)[name]

    def tensor(name: str, shape: tuple[int, ...], inputs: int = 0) -> Tensor:
        if name.endswith((".q.bias", ".k.bias", ".v.bias")):
            return torch.zeros(shape)
        return widest(name, len(shape))[tuple(map(slice, shape))]

    return tensor


@pytest.mark.parametrize(
    ("space", "index"),
    [pytest.param(*subnet, marks=[pytest.mark.slow] if subnet[1] or "base" in subnet[0] else []) for subnet in SUBNETS],
)
def test_exact_is_the_released_code(space: str, index: int) -> None:
    row = ROWS[space][index]
    arch = arch_of(row)
    model = build(arch).eval()
    model.load_state_dict(reference_weights(model.state_dict(), LARGEST[space]))
    with steady():
        assert exact_score(model, RELEASED) == pytest.approx(row["dss_reference"], rel=1e-4)
        if space == "autoformer-tiny":
            assert exact_score(model, RELEASED, NuclearNorms()) == pytest.approx(row["dss_reference"], rel=1e-4)


@pytest.mark.parametrize(
    "space", [pytest.param(space, marks=[pytest.mark.slow] if "base" in space else []) for space in LARGEST]
)
def test_fast_is_close_to_the_released_code(space: str) -> None:
    archs = [arch_of(row) for row in ROWS[space]]
    expected = np.array([row["dss_reference"] for row in ROWS[space]])
    scores = fast(archs, Setting(), RELEASED, reference_tensors(LARGEST[space]))
    assert kendalltau(scores, expected).statistic == pytest.approx(1)
    np.testing.assert_allclose(scores, expected, rtol=2e-4)


def small(name: str) -> vt.Space:
    return spaces.load(name, img_size=16, patch=4 if "twins" not in name and "s3" not in name else 2)


SMALL = Setting(img_size=16, num_classes=5, in_chans=2, seed=3)


@BOTH
@pytest.mark.parametrize("name", NANO_SPACES)
def test_exact_by_its_definition(name: str, variant: Variant) -> None:
    """The equations once more, with numpy's singular values, of the smallest, the largest and a random network."""
    for arch in some_archs(small(name), 3):
        model = network(arch, SMALL)
        with torch.no_grad():
            for place, parameter in model.named_parameters():
                if variant is PAPER or place.rsplit(".", 1)[-1] in ("cls_token", "pos_embed"):
                    parameter.abs_()
        model(torch.ones(1, 2, 16, 16)).sum().backward()
        expected = 0.0
        for place, module in model.named_modules():
            if not isinstance(module, nn.Linear) or module.weight.grad is None or ".blocks." not in place:
                continue
            weight, gradient = (x.detach().double().numpy() for x in (module.weight, module.weight.grad))
            layer = place.rsplit(".", 1)[-1]
            if "mlp" in place:
                product = weight * gradient
                expected += product.sum() if variant is PAPER else np.abs(product).sum()
            elif layer == "proj" or (variant is PAPER and layer in ("q", "k", "v")):
                expected += np.linalg.norm(weight, "nuc") * np.linalg.norm(gradient, "nuc")
        found = exact([arch], SMALL, variant, full_svd=True)[0]
        assert found == pytest.approx(expected, rel=1e-4)
        assert exact([arch], SMALL, variant)[0] == pytest.approx(expected, rel=1e-4)


def test_which_networks_collapse() -> None:
    """The list that docs/proxies.md prints."""
    admitted = {}
    exceptions = ("vit-resnas", "vitas-twins", "pit-nano")
    for name in spaces.SPACES:
        space = spaces.load(name)
        archs = some_archs(space, 12)
        admitted[name] = {admits(arch, Setting(img_size=space.img_size)) for arch in archs}
    for name, found in admitted.items():
        assert found == {not name.startswith(exceptions)}, name
    # A window that does not divide its map sees padding, which is no patch.
    arch = spaces.load("s3-nano").largest
    assert admits(arch, Setting(img_size=32))
    assert not admits(arch, Setting(img_size=38))
    # And the edges of a small map of a PiT are too much of it.
    assert admits(spaces.load("pit-nano").largest, Setting(img_size=96))


@pytest.mark.parametrize("name", ["vitas-twins-nano", "vit-resnas-nano", "pit-nano"])
def test_what_does_not_collapse_is_exact(name: str) -> None:
    archs = some_archs(small(name), 3)
    for proxy, variant in VARIANTS.items():
        found = vt.proxies.score(proxy, archs, img_size=16, num_classes=5, in_chans=2, seed=3)
        assert found == exact(archs, SMALL, variant).tolist()


@BOTH
@pytest.mark.parametrize(
    ("name", "pixels"), [("autoformer-nano", 32), ("vitas-nano", 32), ("s3-nano", 32), ("pit-nano", 96)]
)
def test_fast_orders_as_exact_does(name: str, pixels: int, variant: Variant) -> None:
    setting = Setting(img_size=pixels, num_classes=10)
    archs = list(dict.fromkeys(some_archs(spaces.load(name), 40 if pixels == 32 else 20)))
    assert all(admits(arch, setting) for arch in archs)
    quick, whole = fast(archs, setting, variant), exact(archs, setting, variant)
    assert kendalltau(quick, whole).statistic >= 0.99
    # At the edges of a PiT, pooling sees zeros: patches are not equal any more.
    np.testing.assert_allclose(quick, whole, rtol=0.1 if name == "pit-nano" else 0.02)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize(
    ("name", "pixels", "count"),
    [("autoformer-tiny", 64, 1000), ("autoformer-small", 64, 60), ("autoformer-base", 64, 30), ("pit-ti", 224, 30)],
)
def test_fast_orders_as_exact_does_at_full_width(name: str, pixels: int, count: int, variant: Variant) -> None:
    """bench/dss_agreement.py does this for more of them, at 224 pixels too."""
    space = spaces.load(name)
    archs = list(dict.fromkeys(space.decode_many(space.sample_vectors(np.random.default_rng(1), count + 50))))[:count]
    setting = Setting(img_size=pixels)
    tau = kendalltau(fast(archs, setting, variant), exact(archs, setting, variant)).statistic
    assert tau >= (0.999 if "autoformer" in name else 0.99)


@BOTH
def test_fast_does_not_depend_on_company_order_threads_or_memory(
    variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = spaces.load("vitas-nano")
    archs = some_archs(space, 70)
    setting = Setting(img_size=32, num_classes=10)
    expected = fast(archs, setting, variant)
    assert np.array_equal(fast(archs[::-1], setting, variant)[::-1], expected)
    assert np.array_equal(fast(archs[5:6], setting, variant), expected[5:6])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert np.array_equal(fast(archs, setting, variant), expected)
    finally:
        torch.set_num_threads(threads)
    monkeypatch.setattr("vitruvius.proxies.dss._CHUNK_BYTES", 2**17)
    assert np.array_equal(fast(archs, setting, variant), expected)


@pytest.mark.parametrize("tokens", [1, 2])
def test_nuclear_norms_of_few_tokens(tokens: int) -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(5, tokens, n, generator=generator, dtype=torch.float64) for n in (7, 11))
    right[3] = 0
    left[4] = left[4, :1]  # of rank one
    expected = torch.linalg.matrix_norm(left.mT @ right, "nuc")
    torch.testing.assert_close(nuclear_of_products(left, right), expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("rank", [1, 3, 10, 100])
def test_nuclear_norms_by_rank(rank: int) -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(120, rank, generator=generator) @ torch.randn(rank, 200, generator=generator)
    for each in (matrix, matrix.T):
        expected = float(torch.linalg.matrix_norm(each.double(), "nuc"))
        assert nuclear_of_rank(each, rank) == pytest.approx(expected, rel=1e-5)
    assert nuclear_of_rank(torch.zeros(120, 200), rank) == 0


def test_kept_nuclear_norms() -> None:
    matrix = torch.randn(30, 20, generator=torch.Generator().manual_seed(0))
    norms = NuclearNorms()
    for rows, columns in ((30, 20), (10, 20), (30, 7)):
        found = norms.of("w", rows, columns, lambda r=rows, c=columns: matrix[:r, :c])
        assert found == pytest.approx(float(torch.linalg.matrix_norm(matrix[:rows, :columns].double(), "nuc")))
        assert norms.of("w", rows, columns, lambda: pytest.fail("made again")) == found


def test_reference_dss_says_little_that_the_parameter_count_does_not() -> None:
    """docs/dss-honest.md: Kendall's tau of 0.86 to 0.90 on 100 random architectures."""
    space = spaces.load("autoformer-tiny")
    archs = space.decode_many(space.sample_vectors(np.random.default_rng(0), 100))
    found = vt.proxies.score(["dss-reference", "params"], archs)
    assert 0.85 < kendalltau(found["dss-reference"], found["params"]).statistic < 0.94
