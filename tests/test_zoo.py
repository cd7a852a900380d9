from __future__ import annotations

import json
from pathlib import Path

import pytest

from vitruvius import Arch, costs, zoo

REFERENCE = json.loads((Path(__file__).parent / "data" / "published_architectures.json").read_text())


@pytest.mark.parametrize("name", zoo.names())
def test_every_entry_agrees_with_its_paper_or_says_why_not(name: str) -> None:
    entry = zoo.entry(name)
    assert all(number.agrees for number in entry.numbers().values()) or entry.note
    assert entry.source
    assert Arch.from_json(entry.arch.to_json()) == entry.arch


@pytest.mark.parametrize("name", REFERENCE)
def test_released_architectures_have_the_reference_counts(name: str) -> None:
    cost = costs.cost(zoo.load(name))
    for metric in ("params", "macs"):
        if metric in REFERENCE[name]:
            assert getattr(cost, metric) == REFERENCE[name][metric]


@pytest.mark.parametrize("name", ["vitas-a", "vitas-b", "vitas-c", "vitas-e", "vitas-f"])
def test_vitas_flops_are_explained_exactly(name: str) -> None:
    """ViTAS counts the classifier once per patch and no class token: its printed FLOPs follow to the last digit."""
    arch = zoo.load(name)
    dim, tokens = arch.stages[0].dim, 196
    flops = tokens * 3 * 16**2 * dim + tokens * dim * 1000
    for block in arch.stages[0].blocks:
        linear = 2 * dim * block.qk + 2 * dim * block.v + 2 * dim * block.mlp
        flops += tokens * linear + tokens**2 * (block.qk + block.v)
    assert flops == round(REFERENCE[name]["printed_flops_g"] * 1e9)


@pytest.mark.parametrize("name", ["vit-res-tiny", "vit-resnas-tiny", "vit-resnas-small", "vit-resnas-medium"])
def test_vit_resnas_counts_its_token_labeling_head(name: str) -> None:
    entry = zoo.entry(name)
    head = entry.arch.stages[-1].dim * 1000 + 1000
    assert f"{(costs.params(entry.arch) + head) / 1e6:.0f}" == entry.printed["params"]


def test_aliases_are_the_names_of_the_releases() -> None:
    assert zoo.load("s3-t") == zoo.load("s3-tiny")
    assert zoo.entry("vitas-c").name == "vitas-block"
    assert all(zoo.load(name) for name in REFERENCE)


def test_names_are_unique() -> None:
    assert len({arch.id for arch in map(zoo.load, zoo.names())}) == len(zoo.names())
