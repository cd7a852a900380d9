from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from vitruvius import Arch, costs, zoo
from vitruvius.cli import main

REFERENCE = json.loads((Path(__file__).parent / "data" / "published_architectures.json").read_text())


EXACT = json.loads((Path(__file__).parent / "data" / "zoo_counts.json").read_text())
"""Our parameters and MACs of every entry, counted on the built network when it was added."""


@pytest.mark.parametrize("name", zoo.names())
def test_every_entry_agrees_with_its_paper_or_says_why_not(name: str) -> None:
    entry = zoo.entry(name)
    assert entry.agrees or entry.note
    assert entry.source
    assert Arch.from_json(entry.arch.to_json()) == entry.arch
    for img_size in entry.printed:
        cost = costs.cost(entry.arch, img_size=img_size)
        assert [cost.params, cost.macs] == EXACT[name][str(img_size)]


@pytest.mark.parametrize("name", REFERENCE)
def test_released_architectures_are_those_of_the_reference(name: str) -> None:
    row, arch = REFERENCE[name], zoo.load(name)
    cost = costs.cost(arch)
    for metric in ("params", "macs"):
        if metric in row:
            assert getattr(cost, metric) == row[metric]
    blocks = [block for stage in arch.stages for block in stage.blocks]
    assert arch.patch.size == row["patch_size"]
    if "blocks" in row:
        shapes = [(b["heads"], b["q"], b["k"], b["v"], b["mlp"]) for b in row["blocks"]]
        assert [(b.heads, b.qk, b.qk, b.v, b.mlp) for b in blocks] == shapes
        assert arch.stages[0].dim == row["embed_dim"]
    elif row["family"] == "autoformer":
        assert [block.heads for block in blocks] == row["heads"]
        assert [block.mlp / row["embed_dim"] for block in blocks] == row["mlp_ratio"]
        assert {(block.qk, block.v) for block in blocks} == {(64 * h, 64 * h) for h in row["heads"]}
    else:
        dims = row.get("embed_dim") or [base * h for base, h in zip(row["base_dim"], row["heads"], strict=True)]
        assert [stage.dim for stage in arch.stages] == dims
        assert [len(stage.blocks) for stage in arch.stages] == row["depths"]
        assert [stage.blocks[0].heads for stage in arch.stages] == row["heads"]
        assert {block.mlp / stage.dim for stage in arch.stages for block in stage.blocks} == {row["mlp_ratio"]}
        assert arch.patch.stride == row.get("stride", row["patch_size"])
        if "window" in row:
            assert [stage.blocks[-1].window for stage in arch.stages] == row["window"]


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
    assert f"{(costs.params(entry.arch) + head) / 1e6:.0f}" == entry.printed[224]["params"]


def test_aliases_are_the_names_of_the_releases() -> None:
    assert zoo.load("s3-t") == zoo.load("s3-tiny")
    assert zoo.entry("vitas-c").name == "vitas-block"
    assert all(zoo.load(name) for name in REFERENCE)


def test_names_are_unique() -> None:
    assert len({arch.id for arch in map(zoo.load, zoo.names())}) == len(zoo.names())


def test_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parent.parent / "docs" / "zoo.md").read_text()
    saved, sys.argv = sys.argv, ["vitruvius", "zoo", "--notes"]
    try:
        with pytest.raises(SystemExit):
            main()
    finally:
        sys.argv = saved
    assert capsys.readouterr().out.strip() in page
