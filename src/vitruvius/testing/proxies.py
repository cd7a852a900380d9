"""The laws of proxies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from vitruvius.arch import Arch
from vitruvius.proxies import PROXIES, Batch, Measured, Proxy, Setting, measure

_COMPANY = ("grasp", "fisher", "naswot", "az_nas")
"""Together they differentiate twice and write everything down."""


def check_proxy(proxy: Proxy, archs: Sequence[Arch], setting: Setting, rtol: float = 0.0) -> None:
    """What every proxy must hold, on architectures of one space (three or more, different ones).

    What it measures of an architecture depends neither on the other candidates, nor on their order, nor on the number
    of threads, nor on other proxies measured along with it, nor on a global generator, all to the bit unless `rtol`
    allows more. Its declarations are true: what it says it does not need makes no difference to it. Its scores are the
    same function of the parts whatever the order, and `of_the_set` is said where they depend on the others.
    """
    assert len(archs) > 2, "the laws need three architectures"
    expected = _measured(proxy, archs, setting)
    assert set(expected) == set(proxy.parts), f"{proxy.name} measures {sorted(expected)} and declares {proxy.parts}"
    for part, values in expected.items():
        assert part == proxy.name or part.startswith(f"{proxy.name}."), f"part {part} does not begin with {proxy.name}"
        assert values.shape == (len(archs),), f"{part} has shape {values.shape} for {len(archs)} architectures"
        assert values.dtype == np.float64, f"{part} is of {values.dtype}"

    def same(found: Measured, when: str, order: Sequence[int] = range(len(archs))) -> None:
        for part, values in expected.items():
            np.testing.assert_allclose(found[part], values[list(order)], rtol, 0, err_msg=f"{part} {when}")

    for place, arch in enumerate(archs):
        same(_measured(proxy, [arch], setting), "of one alone", [place])
    backwards = list(range(len(archs)))[::-1]
    same(_measured(proxy, [archs[i] for i in backwards], setting), "in another order", backwards)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 if threads == 1 else 1)
        same(_measured(proxy, archs, setting), "with other threads")
    finally:
        torch.set_num_threads(threads)
    others = [PROXIES[name] for name in _COMPANY if name != proxy.name]
    same(measure([*others, proxy], Batch(list(archs)), setting), "with other proxies")
    state = torch.get_rng_state()
    torch.manual_seed(1 + int(state[0]))
    moved = torch.get_rng_state()
    same(_measured(proxy, archs, setting), "with another global generator")
    assert torch.equal(torch.get_rng_state(), moved), f"{proxy.name} draws from torch's generator"
    torch.set_rng_state(state)
    _check_needs(proxy, archs, setting, expected)
    _check_combine(proxy, expected)


def _measured(proxy: Proxy, archs: Sequence[Arch], setting: Setting) -> Measured:
    return measure([proxy], Batch(list(archs)), setting)


def _differs(proxy: Proxy, archs: Sequence[Arch], setting: Setting, expected: Measured) -> bool:
    found = _measured(proxy, archs, setting)
    return any(not np.array_equal(found[part], values, equal_nan=True) for part, values in expected.items())


def _check_needs(proxy: Proxy, archs: Sequence[Arch], setting: Setting, expected: Measured) -> None:
    images, labels = setting.images, setting.labels
    changes = {
        "labels": (proxy.needs.labels, (images, (labels + 1) % setting.num_classes)),
        "images": (proxy.needs.images == "batch", (images.flip(-1) * 2, labels)),
    }
    for what, (needed, batch) in changes.items():
        changed = replace(setting)
        changed.__dict__["_batch"] = batch
        differs = _differs(proxy, archs, changed, expected)
        found = "depends on" if differs else "does not depend on"
        assert differs == needed, f"{proxy.name} {found} {what}, and declares otherwise"
    if proxy.needs.init == "none" and proxy.needs.images == "none" and proxy.passes:
        raise AssertionError(f"{proxy.name} runs networks and declares no initialisation")


def _check_combine(proxy: Proxy, expected: Measured) -> None:
    scores = proxy.combine(expected)
    backwards = proxy.combine({part: values[::-1] for part, values in expected.items()})[::-1]
    np.testing.assert_array_equal(scores, backwards, err_msg=f"scores of {proxy.name} depend on the order")
    first = {part: values[:1] for part, values in expected.items()}
    if not proxy.of_the_set:
        message = f"scores of {proxy.name} depend on the set, and it does not say so"
        np.testing.assert_array_equal(proxy.combine(first), scores[:1], err_msg=message)
