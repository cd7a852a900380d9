"""Every proxy on every family: independence, determinism, true declarations; keyed weights; what is not finite."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import vitruvius as vt
from conftest import NANO_SPACES, some_archs
from vitruvius import data, proxies, spaces
from vitruvius.proxies import PROXIES, Batch, Keyed, Needs, OneByOne, Setting, best_first, measure
from vitruvius.proxies._candidate import network
from vitruvius.testing import check_proxy
from vitruvius.testing.proxies import _measured

SMALL = {"img_size": 16, "num_classes": 5, "in_chans": 1, "batch_size": 3}


def small(name: str) -> vt.Space:
    return spaces.load(name, img_size=16, patch=4 if "twins" not in name and "s3" not in name else 2)


@pytest.mark.parametrize("name", NANO_SPACES)
@pytest.mark.parametrize("proxy", PROXIES)
def test_the_laws(proxy: str, name: str) -> None:
    check_proxy(PROXIES[proxy], some_archs(small(name), 3), Setting(**SMALL))


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("options", [{"img_size": (16, 32), "in_chans": 3}, {"img_size": 32, "num_classes": 1}])
def test_any_image_size_and_class_count(proxy: str, options: dict) -> None:
    archs = some_archs(small("autoformer-nano"), 3)
    scores = vt.proxies.score(proxy, archs, **{**SMALL, **options})
    if options.get("num_classes") == 1 and PROXIES[proxy].needs.labels:
        assert scores == [0.0] * 3  # one class is always right: the loss has no gradient
    else:
        assert np.isfinite(scores).all()
        assert len(set(scores)) > 1


@pytest.mark.parametrize("proxy", [proxy for proxy in PROXIES if isinstance(PROXIES[proxy], OneByOne)])
def test_a_proxy_measures_by_itself_what_it_measures_among_others(proxy: str) -> None:
    archs = some_archs(small("vitas-nano"), 2)
    setting = Setting(**SMALL)
    found = PROXIES[proxy].combine(PROXIES[proxy].measure(Batch(archs), setting))
    other = "snip" if proxy == "grad_norm" else "grad_norm"
    assert np.array_equal(found, vt.proxies.score([proxy, other], archs, **SMALL)[proxy], equal_nan=True)


def test_shapes_of_answers() -> None:
    archs = some_archs(small("pit-nano"), 3)
    assert isinstance(vt.proxies.score("params", archs[0], **SMALL), float)
    assert len(vt.proxies.score("params", archs, **SMALL)) == 3
    several = vt.proxies.score(["params", "macs"], archs, **SMALL)
    assert several["macs"] == vt.costs.macs(archs, img_size=16, num_classes=5, in_chans=1).tolist()
    assert list(several) == ["params", "macs"]
    assert vt.proxies.score("params", [], **SMALL) == []


def test_vectors_are_scored_as_their_architectures() -> None:
    space = small("vitas-nano")
    vectors = space.sample_vectors(np.random.default_rng(0), 3)
    options = {**SMALL, "img_size": None}
    names = ["snip", "params", "depth", "random"]
    by_vector = vt.proxies.score(names, vectors, space=space, **options)
    assert by_vector == vt.proxies.score(names, space.decode_many(vectors), space=space, **options)
    assert vt.proxies.score("depth", vectors[0], space=space) == by_vector["depth"][0]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda arch: vt.proxies.score("snop", arch), "did you mean 'snip'"),
        (lambda arch: vt.proxies.score([], arch), "which proxies"),
        (lambda arch: vt.proxies.score(["snip", "snip"], arch), "twice"),
        (lambda arch: vt.proxies.score("snip", "deit-tiny"), "proxies score an Arch"),
        (lambda arch: vt.proxies.score("snip", np.zeros((2, 3), np.int64)), "need their space"),
        (lambda arch: vt.proxies.score("snip", arch, seed=-1), "a seed"),
        (lambda arch: vt.proxies.score("snip", arch, batch_size=0), "batch_size"),
        (lambda arch: vt.proxies.score("snip", arch, num_classes=0), "with a classifier"),
        (lambda arch: vt.proxies.score("snip", arch, data="digits", num_classes=3), "those of the data"),
        (lambda arch: vt.proxies.score("snip", arch, data="digits", batch_size=10**5), "train split"),
    ],
)
def test_bad_input_is_one_line(call, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        call(small("pit-nano").smallest)
    assert "\n" not in str(caught.value)


def test_keyed_tensors_do_not_depend_on_what_was_asked_before() -> None:
    fresh, grown = Keyed(3), Keyed(3)
    wide = fresh.normal("w", (40, 30))
    grown.normal("w", (10, 50))
    assert torch.equal(grown.normal("w", (20, 20)), wide[:20, :20])
    assert torch.equal(grown.normal("w", (40, 30)), wide)
    assert not torch.equal(fresh.normal("v", (40, 30)), wide)
    assert not torch.equal(Keyed(4).normal("w", (40, 30)), wide)


def test_keyed_tensors_are_normal_and_uniform() -> None:
    from scipy.stats import kstest

    normal, even = Keyed(0).normal("w", (300, 200)), Keyed(0).uniform("w", (300, 200))
    assert kstest(normal.flatten().numpy(), "norm").pvalue > 1e-3
    assert kstest(even.flatten().numpy(), "uniform", args=(-1, 2)).pvalue > 1e-3
    together = torch.corrcoef(torch.stack([normal[:-1].flatten(), normal[1:].flatten()]))[0, 1]
    assert abs(together) < 0.02


@pytest.mark.parametrize("name", NANO_SPACES)
def test_networks_start_as_build_starts_them(name: str) -> None:
    space = small(name)
    ours = network(space.largest, Setting(num_classes=5, img_size=16))
    theirs = vt.build(space.largest, num_classes=5, img_size=16, seed=0).eval()
    assert {n: b.shape for n, b in ours.state_dict().items()} == {n: b.shape for n, b in theirs.state_dict().items()}
    for (place, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        if other.unique().numel() == 1:
            assert torch.equal(mine, other), place
        elif other.numel() > 500:
            assert float(mine.detach().std()) == pytest.approx(float(other.detach().std()), rel=0.15), place
    assert all(torch.equal(mine, other) for mine, other in zip(ours.buffers(), theirs.buffers(), strict=True))


def test_two_architectures_start_with_equal_slices() -> None:
    space = small("autoformer-nano")
    wide, narrow = (dict(network(a, Setting(**SMALL)).named_parameters()) for a in (space.largest, space.smallest))
    for name, parameter in narrow.items():
        assert torch.equal(wide[name][tuple(slice(n) for n in parameter.shape)], parameter) or "conv" in name, name


def test_real_images_come_from_train_and_only_from_there() -> None:
    loaded = data.load("digits")

    class Closed(data.Images):
        """Images that must not be looked at."""

        labels = np.zeros(9, np.int64)
        in_memory = True

        def pixels(self, indices):
            raise AssertionError("search looked at images that are not its own")

        subset = pixels

    from dataclasses import replace

    guarded = replace(loaded, search=replace(loaded.search, val=Closed()), _test=Closed())
    setting = proxies.setting_of(data=guarded, img_size=16, batch_size=4)
    assert (setting.num_classes, setting.in_chans) == (10, 1)
    assert setting.images.shape == (4, 1, 16, 16)
    chosen = np.random.default_rng(0).permutation(len(loaded.search.train))[:4]
    assert setting.labels.tolist() == loaded.search.train.labels[chosen].tolist()
    archs = some_archs(small("vitas-nano"), 3)
    real = vt.proxies.score(["snip", "synflow"], archs, data=guarded, img_size=16, batch_size=4)
    random = vt.proxies.score(["snip", "synflow"], archs, img_size=16, batch_size=4, num_classes=10, in_chans=1)
    assert real["snip"] != random["snip"]
    assert real["synflow"] == random["synflow"]


class Broken(OneByOne):
    name = "broken"
    source = "a test"
    needs = Needs()
    passes = 0

    def of(self, candidate: proxies.Candidate) -> dict[str, float]:
        return {"broken": {0: math.nan, 1: math.inf}.get(candidate.arch.depth % 3, float(candidate.arch.depth))}


def test_what_is_not_finite_is_reported_and_not_ranked() -> None:
    archs = some_archs(small("autoformer-nano"), 8)
    found = Broken().combine(measure([Broken()], Batch(archs), Setting(**SMALL)))
    expected = [{0: math.nan, 1: math.inf}.get(a.depth % 3, float(a.depth)) for a in archs]
    np.testing.assert_array_equal(found, expected)
    finite = [i for i, value in enumerate(expected) if math.isfinite(value)]
    assert 0 < len(finite) < 8
    assert best_first(found) == sorted(finite, key=lambda i: -expected[i])
    assert best_first({"a": math.nan, "b": 1.0, "c": 2.0, "d": -math.inf}) == ["c", "b"]


class NotAlone(OneByOne):
    """Breaks the first law: a candidate's value depends on how many were scored before."""

    name = "not_alone"
    source = "a test"
    needs = Needs()
    passes = 0
    seen = 0

    def of(self, candidate: proxies.Candidate) -> dict[str, float]:
        self.seen += 1
        return {"not_alone": float(self.seen)}


class Undeclared(OneByOne):
    """Looks at labels that it does not declare."""

    name = "undeclared"
    source = "a test"
    needs = Needs(init="default")
    passes = 0

    def of(self, candidate: proxies.Candidate) -> dict[str, float]:
        return {"undeclared": float(candidate.setting.labels.sum())}


@pytest.mark.parametrize(("proxy", "says"), [(NotAlone(), "of one alone"), (Undeclared(), "depends on labels")])
def test_the_suite_catches_what_breaks_the_laws(proxy: OneByOne, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check_proxy(proxy, some_archs(small("vitas-nano"), 3), Setting(**SMALL))


def test_seeds_change_weights_and_images() -> None:
    archs = some_archs(small("vitas-nano"), 3)
    one, two = (_measured(PROXIES["snip"], archs, Setting(**SMALL, seed=seed))["snip"] for seed in (0, 1))
    assert not np.isclose(one, two, rtol=1e-3).any()
