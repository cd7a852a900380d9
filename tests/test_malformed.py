"""A hundred ways to be wrong, each answered by one line that names the rule, what was given, and what is allowed."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import yaml

from vitruvius import Arch, Budget, Space, costs, spaces, zoo
from vitruvius.models import build

ARCH = {
    "family": "vit",
    "version": 1,
    "patch": {"size": 16},
    "positions": "absolute",
    "class_token": True,
    "pool": "token",
    "stages": [{"dim": 192, "blocks": [{"mixer": "global", "heads": 3, "qk": 192, "v": 192, "mlp": 768}] * 2}],
}
SWIN = {
    **ARCH,
    "family": "swin",
    "positions": "bias",
    "class_token": False,
    "pool": "mean",
    "stages": [{"dim": 96, "blocks": [{"mixer": "window", "window": 7, "heads": 3, "qk": 96, "v": 96, "mlp": 384}]}]
    * 2,
}
SPACE = {
    "name": "mine",
    "family": "vit",
    "patch": 16,
    "class_token": True,
    "pool": "token",
    "positions": "absolute",
    "stages": [{"dim": [192, 240], "depth": [2, 3], "block": {"heads": [3, 4], "head_dim": 64, "mlp_ratio": [3, 4]}}],
}


def put(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of `base` with the value at a dotted path changed, or removed if it is `...`."""
    data = copy.deepcopy(base)
    here: Any = data
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in way:
        here = here[part]
    if value is ...:
        del here[last]
    else:
        here[last] = value
    return data


RNG = np.random.default_rng(0)
B = "stages.0.blocks.0."
RECORDS: list[tuple[dict[str, Any], str, Any, str]] = [
    (ARCH, "family", "vitt", "unknown family.*did you mean 'vit'"),
    (ARCH, "family", 3, "unknown family"),
    (ARCH, "family", ..., "needs the key 'family'"),
    (ARCH, "version", 2, "unknown Arch format version"),
    (ARCH, "version", "1", "unknown Arch format version"),
    (ARCH, "version", ..., "needs the key 'version'"),
    (ARCH, "patches", 16, "unknown key.*did you mean 'patch'"),
    (ARCH, "patch", 16, "a patch must be a mapping"),
    (ARCH, "patch.size", 0, "patch size must be a positive"),
    (ARCH, "patch.size", 16.0, "patch size must be a positive"),
    (ARCH, "patch.size", "16", "patch size must be a positive"),
    (ARCH, "patch.size", ..., "a patch needs the key 'size'"),
    (ARCH, "patch.stride", 8, "do not overlap"),
    (ARCH, "patch.stride", 32, "cannot stride farther"),
    (ARCH, "patch.stride", -1, "patch stride must be a positive"),
    (ARCH, "patch.stem", 24, "no convolutional stem"),
    (ARCH, "patch.stem", -1, "number of channels"),
    (ARCH, "patch.width", 3, "unknown key in a patch"),
    (ARCH, "positions", "sine", "unknown positions of family 'vit'"),
    (ARCH, "positions", "bias", "unknown positions of family 'vit'"),
    (ARCH, "positions", None, "unknown positions"),
    (ARCH, "class_token", 1, "class_token must be true or false"),
    (ARCH, "class_token", "yes", "class_token must be true or false"),
    (ARCH, "class_token", False, "pooling by the class token needs"),
    (ARCH, "pool", "max", "unknown pool"),
    (ARCH, "attn_scale", "width", "unknown attn_scale"),
    (ARCH, "norm_eps", 0.5, "norm_eps must be a small"),
    (ARCH, "norm_eps", 0, "norm_eps must be a small"),
    (ARCH, "norm_eps", "1e-5", "norm_eps must be a small"),
    (ARCH, "stages", [], "has 1 to 1 stages"),
    (ARCH, "stages", 12, "stages must be a list"),
    (ARCH, "stages", SWIN["stages"], "has 1 to 1 stages"),
    (ARCH, "stages.0", 7, r"stages\[0\] must be a mapping"),
    (ARCH, "stages.0.dim", 0, "stage dim must be a positive"),
    (ARCH, "stages.0.dim", 19.5, "stage dim must be a positive"),
    (ARCH, "stages.0.dim", ..., "needs the key 'dim'"),
    (ARCH, "stages.0.depth", 2, "unknown key in stages"),
    (ARCH, "stages.0.blocks", 2, r"stages\[0\].blocks must be a list"),
    (ARCH, "stages.0.blocks.1", None, r"stages\[0\].blocks\[1\] must be a mapping"),
    (ARCH, B + "mixer", "conv", r"stages\[0\].blocks\[0\]: unknown mixer"),
    (ARCH, B + "mixer", ..., "needs the key 'mixer'"),
    (ARCH, B + "heads", 0, "block heads must be a positive"),
    (ARCH, B + "heads", 5, "block qk must be a multiple of its 5 heads"),
    (ARCH, B + "heads", True, "block heads must be a positive"),
    (ARCH, B + "qk", 100, "block qk must be a multiple of its 3 heads"),
    (ARCH, B + "v", 100, "block v must be a multiple of its 3 heads"),
    (ARCH, B + "mlp", -768, "block mlp must be a positive"),
    (ARCH, B + "mlp_ratio", 4, "unknown key.*blocks"),
    (ARCH, B + "window", 7, "a global block has no window"),
    (ARCH, B + "reduction", 2, "a global block has no reduction"),
    (SWIN, B + "mixer", "global", "a global block has no window"),
    (SWIN, B + "window", ..., "a window block's window must be"),
    (SWIN, B + "window", 0, "a window block's window must be"),
    (SWIN, "stages.0.blocks.0", {**SWIN["stages"][0]["blocks"][0], "mixer": "shifted", "window": 1}, "cannot shift"),
    (SWIN, "stages.0.blocks.0", {**ARCH["stages"][0]["blocks"][0]}, "unknown mixer of family 'swin'"),
    (SWIN, "class_token", True, "unknown class_token of family 'swin'"),
    (SWIN, "pool", "token", "unknown pool of family 'swin'"),
]
S = "stages.0."
SPACES: list[tuple[str, Any, str]] = [
    ("name", ..., "needs the key 'name'"),
    ("name", "", "a space needs a name"),
    ("family", "cnn", "unknown family"),
    ("patch", 0, "patch size must be a positive"),
    ("patch", [], "patch needs at least one choice"),
    ("patch", [16, 16], "patch has a choice twice"),
    ("patch", [16, "x"], "patch must be numbers"),
    ("patch", 15, "an image side must fit patches of 15"),
    ("stride", 8, "do not overlap"),
    ("stem", 24, "no convolutional stem"),
    ("img_size", 100, "an image side must fit patches of 16"),
    ("img_size", 2.5, "an image size is"),
    ("img_size", "224", "an image size is"),
    ("img_size", [224, 224, 3], "an image size is"),
    ("class_token", "true", "class_token must be true or false"),
    ("pool", "max", "unknown pool"),
    ("positions", "bias", "unknown positions of family"),
    ("attn_scale", 2, "unknown attn_scale"),
    ("norm_eps", 1, "norm_eps must be a small"),
    ("depth", 3, "unknown key in a space"),
    ("net", 3, "a space's net must be a mapping"),
    ("net", {"width": 3}, "unknown key in a space's net"),
    ("net", {"heads": [3]}, "written on the whole space already"),
    ("net", {"dim": [192]}, "written on the whole space already"),
    ("stages", [], "has 1 to 1 stages"),
    ("stages", {}, "stages must be a list"),
    ("stages", None, "needs the key 'stages'|stages must be a list"),
    (S[:-1], 4, "stage 1 must be a mapping"),
    (S + "dim", ..., "has no dim"),
    (S + "dim", [0, 192], "stage dim must be a positive"),
    (S + "dim", [192.5], "stage dim must be a positive"),
    (S + "dim", [[192]], "stage dim must be numbers"),
    (S + "dim", True, "stage dim must be"),
    (S + "depth", ..., "needs the key 'depth'"),
    (S + "depth", [], "stage depth needs at least one choice"),
    (S + "depth", -1, "depth must be a number of blocks"),
    (S + "depth", 2.5, "depth must be a number of blocks"),
    (S + "depth", "deep", "depth must be a number of blocks"),
    (S + "identity", "nowhere", "unknown identity"),
    (S + "identity", "anywhere", "depth is the number of layers"),
    (S + "skippable", [1], "skippable layers belong to identity 'anywhere'"),
    (S + "blocks", {}, "unknown key in stage 1.*did you mean 'block'"),
    (S + "block", [3], "a block's must be a mapping"),
    (S + "block.width", [3], "unknown key in a block's"),
    (S + "block.heads", ..., "heads and widths must be given in one of these ways"),
    (S + "block.heads", "3", "a block's heads must be a positive"),
    (S + "block.heads", [0], "a block's heads must be a positive"),
    (S + "block.qkv", [192], "heads and widths must be given in one of these ways"),
    (S + "block.mlp", [768], "give the MLP by width or by ratio"),
    (S + "block.mlp_ratio", ..., "give the MLP by width or by ratio"),
    (S + "block.mlp_ratio", [-1], "mlp_ratio must be positive"),
    (S + "block.mlp_ratio", "big", "mlp_ratio must be positive"),
    (S + "block.mlp_ratio", [3, 3.0001], "MLP ratios must be different widths"),
    (S + "block.mixer", "local", "unknown mixer of family 'vit'"),
    (S + "block.mixer", "blend", "unknown mixer"),
    (S + "block", {"heads": [3, 5], "qkv": [192], "mlp": [768]}, "every qkv must be a multiple"),
    (S + "block", {"qkv": [100], "head_dim": 64, "mlp": [768]}, "every qkv must be a multiple of every head_dim"),
    (S + "block", {"heads": [3], "qk": [192], "v": [100], "mlp": [768]}, "every v must be a multiple"),
    (S + "block", {"heads": [5], "mlp": [768]}, "every dim must be a multiple of heads"),
    (S + "stage", {"heads": [3, 4]}, "a parameter is written in one place"),
    (S + "depth", None, "depth must be a number of blocks|stage depth"),
    (S + "depth", 10**8, "depth must be a number of blocks"),
    (S + "dim", 10**20, "stage dim must be a positive"),
    (S + "block.mlp_ratio", float("inf"), "mlp_ratio must be positive"),
    (S + "block.mlp_ratio", float("nan"), "mlp_ratio must be positive"),
    (S + "block.mlp_ratio", 10**30, "mlp_ratio must be positive"),
    (S + "block.mlp_ratio", 10**5, "block mlp must be a positive"),
    (S + "block.window", 7, "no mixer has a window"),
    (
        S[:-1],
        {**SPACE["stages"][0], "depth": 3, "identity": "anywhere", "skippable": [1.0]},
        "a skippable layer must be",
    ),
    (S + "block", {"mixer": ["global", "global+global"], "heads": 3, "mlp": 9}, "mixers that alternate stand alone"),
    ("source", ["a"], "a space's source must be text"),
    ("norm_eps", "small", "norm_eps must be a small"),
]
TWINS = {
    **{**SPACE, "family": "twins", "class_token": False, "pool": "mean", "positions": "conv", "patch": 4},
    "img_size": 32,
    "stages": [{"dim": 8, "depth": 2, "block": {"mixer": "subsampled", "reduction": 2, "heads": 2, "mlp": 8}}],
}
TWINS_SPACES: list[tuple[str, Any, str]] = [
    (S + "block.reduction", [1, 2], "a reduction of 1 is the mixer 'global'"),
    (S + "block.reduction", [2, 16], "a reduction must fit the 8x8 token grid"),
    (S + "block.reduction", ..., "mixer 'subsampled' needs a reduction"),
    (S + "block.mixer", ["subsampled", "local"], "mixer 'local' needs a window"),
]


def complaint(make: Callable[[], object]) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is what is tested
        make()
    text = str(caught.value)
    assert "\n" not in text
    assert "allowed: " in text
    return text


@pytest.mark.parametrize(("base", "path", "value", "rule"), RECORDS, ids=lambda part: str(part)[:40])
def test_malformed_record(base: dict[str, Any], path: str, value: Any, rule: str) -> None:
    text = json.dumps(put(base, path, value))
    assert re.search(rule, complaint(lambda: Arch.from_json(text)))


@pytest.mark.parametrize(("path", "value", "rule"), SPACES, ids=lambda part: str(part)[:40])
def test_malformed_space(path: str, value: Any, rule: str) -> None:
    text = yaml.safe_dump(put(SPACE, path, value))
    assert re.search(rule, complaint(lambda: Space.from_yaml(text)))


@pytest.mark.parametrize(("path", "value", "rule"), TWINS_SPACES, ids=lambda part: str(part)[:40])
def test_malformed_twins_space(path: str, value: Any, rule: str) -> None:
    text = yaml.safe_dump(put(TWINS, path, value))
    assert re.search(rule, complaint(lambda: Space.from_yaml(text)))


def test_an_attention_scale_needs_a_channel_a_head() -> None:
    narrow = put(put(SPACE, "attn_scale", "embed"), "stages.0.dim", [2, 192])
    assert "needs a channel a head" in complaint(lambda: Space.from_dict(narrow))


def test_yamls_own_idea_of_numbers() -> None:
    assert Space.from_yaml(yaml.safe_dump(SPACE) + "norm_eps: 1e-5\n").norm_eps == 1e-5


def test_the_bases_are_well_formed() -> None:
    assert Arch.from_dict(ARCH).depth == 2
    assert Arch.from_dict(SWIN).depth == 2
    assert Space.from_dict(SPACE).size == 2 * (4**2 + 4**3)
    assert len(RECORDS) + len(SPACES) >= 100


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: Arch.from_json("{"), "must be JSON text"),
        (lambda: Arch.from_json("[]"), "an architecture must be a mapping"),
        (lambda: Arch.from_json("[" * 10**5), "must be JSON text"),
        (lambda: Arch.from_dict({**ARCH, "version": 1.0}), "unknown Arch format version"),
        (lambda: Arch.from_dict({**ARCH, "version": True}), "unknown Arch format version"),
        (lambda: Arch.from_dict({**ARCH, "main_branch": False}), "main_branch is true or false"),
        (lambda: spaces.load("s3").moved("stage1.mixer", 1), "only a dimension of numbers can be moved"),
        (lambda: spaces.load("s3").mutate(spaces.load("s3").largest, RNG, 5), "mutation probability must be between"),
        (lambda: spaces.load("s3").sample_within("macs<=9G", RNG, identity=1.5), "identity probability must be"),
        (lambda: spaces.load("s3").sample_within("macs<=9G", RNG, num_classes=-5), "num_classes must be"),
        (lambda: spaces.load("s3").sample_within("macs<=0", RNG), "no network of space 's3'"),
        (lambda: spaces.load("s3").encode("s3"), "only an Arch can be encoded"),
        (lambda: costs.macs(np.full((1, 56), -1), space=spaces.load("s3")), "is the index of a choice"),
        (lambda: costs.macs(np.zeros((1, 5), int), space=spaces.load("s3")), "encoded architectures of"),
        (lambda: costs.macs(zoo.load("deit-tiny"), img_size=16 * 60_000), "countable in 64 bits"),
        (lambda: Budget.of({"macs": ("1G", "2G")}), "ends must be numbers"),
        (lambda: Budget.of("macs = 1G +- 1.2.3%"), "a budget cannot be read"),
        (lambda: build(zoo.load("deit-tiny"), features_only=True, out_indices=[99]), "out_indices name feature maps"),
        (lambda: build(spaces.load("vitas-v1").smallest, features_only=True), "features need a block"),
        (lambda: Space.from_yaml("a: [\n"), "a space must be YAML"),
        (lambda: Space.from_yaml("nothing.yaml"), "cannot be read"),
        (lambda: Space.from_yaml("- 1\n- 2\n"), "a space must be a mapping"),
        (lambda: zoo.load("s4-tiny"), "did you mean 's3-tiny'"),
        (lambda: spaces.load("autoformer"), "unknown space"),
        (lambda: spaces.load("vitas-v1", img_size=32), "has no options"),
        (lambda: spaces.load("s3").with_choices("stage9.dim", [1]), "unknown dimension"),
        (lambda: spaces.load("s3").moved("stage1.dim", -500), "no choice of stage1.dim is left"),
        (lambda: Budget.of("latency: 5"), "a budget cannot be read|unknown metric"),
        (lambda: Budget.of("flops <= 5G"), "unknown metric"),
        (lambda: Budget.of("macs: 2G..1G"), "must not pass its upper end"),
        (lambda: Budget.of("macs: .."), "a budget needs an end"),
        (lambda: Budget.of("macs: lots"), "a budget cannot be read"),
        (lambda: Budget.of(""), "a budget cannot be read"),
        (lambda: Budget.of({}), "needs at least one metric"),
        (lambda: Budget.of({"macs": 3}), "text or two ends"),
        (lambda: Budget.of("macs<=1G, macs>=2G"), "has a metric twice"),
        (lambda: costs.params(zoo.load("deit-tiny"), num_classes=-1), "num_classes must be"),
        (lambda: costs.macs(zoo.load("deit-tiny"), img_size=225), "an image side must fit"),
        (lambda: costs.macs(zoo.load("twins-svt-small"), img_size=36), "sides must be even"),
        (lambda: costs.macs(zoo.load("twins-svt-small"), img_size=8), "must be even"),
        (lambda: build("deit-tiny"), "build needs an Arch"),
        (lambda: build(zoo.load("deit-tiny"), num_classes=2.5), "num_classes must be a whole number"),
        (lambda: build(zoo.load("deit-tiny"), in_chans=0), "in_chans must be a whole number"),
        (lambda: build(zoo.load("deit-tiny"), dropout=0.1), "unknown dropout rate or other option"),
        (lambda: build(zoo.load("deit-tiny"), drop_rate=1.5), "drop_rate must be a probability"),
        (lambda: build(zoo.load("deit-tiny"), img_size=100), "an image side must fit"),
        (lambda: build(zoo.load("deit-tiny"), drop_rate="0.1"), "drop_rate must be a probability"),
        (lambda: Arch.from_json('{"version": ' + "1" * 5000 + "}"), "an architecture must be JSON text"),
        (lambda: Space.from_yaml("[" * 5000 + "\n"), "a space must be YAML"),
        (lambda: Space.from_yaml("name: 2020-13-45\nfamily: vit\n"), "a space must be YAML"),
        (lambda: Space.from_yaml("patch: " + "1" * 5000 + "\n"), "a space must be YAML"),
        (lambda: Space.from_yaml("no\0name"), "cannot be read"),
        (lambda: Space.from_yaml(None), "must be a path or text"),
        (lambda: costs.params("s3-tiny"), "costs are counted of an Arch"),
        (lambda: costs.macs(["s3-tiny"]), "costs are counted of an Arch"),
        (lambda: costs.macs(None), "costs are counted of an Arch"),
        (
            lambda: spaces.load("vitas-nano", image_size=32),
            "unknown option of space 'vitas-nano'.*did you mean 'img_size'",
        ),
        (lambda: spaces.load("s3").sample_vectors(RNG, -1), "how many architectures"),
        (lambda: spaces.load("s3").sample_vectors(RNG, 2.5), "how many architectures"),
        (lambda: spaces.load("s3").sample_within("macs<=9G", RNG, n=-1), "how many architectures"),
    ],
)
def test_malformed_call(make: Callable[[], object], rule: str) -> None:
    assert re.search(rule, complaint(make))
