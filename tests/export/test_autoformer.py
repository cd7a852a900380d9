"""AutoFormer's checkpoints give the released networks' logits: the reference here slices and runs them on its own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from test_cli import run
from vitruvius import Arch, Superformer, export, spaces, zoo
from vitruvius.export._autoformer import Released
from vitruvius.models import Backbone

HEAD, PATCH, SIDE, CLASSES = 16, 4, 16, 5
SPACE = spaces.load("autoformer-nano", img_size=SIDE, patch=PATCH)


def released(
    dim: int, depth: int, qkv: int, mlp: int, head: int = HEAD, seed: int = 0, **options: Any
) -> dict[str, Tensor]:
    """A checkpoint by the released code's names, biases and all of random numbers."""
    side, patch, classes = (options.get(k, d) for k, d in (("side", SIDE), ("patch", PATCH), ("classes", CLASSES)))
    shapes: dict[str, tuple[int, ...]] = {
        "patch_embed_super.proj.weight": (dim, 3, patch, patch),
        "patch_embed_super.proj.bias": (dim,),
        "cls_token": (1, 1, dim),
        "pos_embed": (1, (side // patch) ** 2 + 1, dim),
        "norm.weight": (dim,),
        "norm.bias": (dim,),
        "head.weight": (classes, dim),
        "head.bias": (classes,),
    }
    for i in range(depth):
        own = {"attn.qkv": (3 * qkv, dim), "attn.proj": (dim, qkv), "fc1": (mlp, dim), "fc2": (dim, mlp)}
        own |= {"attn_layer_norm": (dim,), "ffn_layer_norm": (dim,)}
        for name, shape in own.items():
            shapes |= {f"blocks.{i}.{name}.weight": shape, f"blocks.{i}.{name}.bias": shape[:1]}
        for table in ("k.embeddings_table_v", "k.embeddings_table_h", "v.embeddings_table_v", "v.embeddings_table_h"):
            shapes[f"blocks.{i}.attn.rel_pos_embed_{table}"] = (30, head)
    device = options.get("device", "cpu")
    if device == "meta":
        return {name: torch.empty(shape, device=device) for name, shape in shapes.items()}
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) * 0.2 for name, shape in shapes.items()}


def reference(weights: Mapping[str, Tensor], arch: Arch, x: Tensor) -> Tensor:
    """The released forward pass: leading slices, q, k and v in turns in the weight but not in the bias, and the
    relative vectors of all pairs as one tensor."""
    (stage,) = arch.stages
    d = stage.dim

    def norm(name: str, t: Tensor) -> Tensor:
        return F.layer_norm(t, (d,), weights[f"{name}.weight"][:d], weights[f"{name}.bias"][:d], 1e-5)

    patches = F.conv2d(
        x, weights["patch_embed_super.proj.weight"][:d], weights["patch_embed_super.proj.bias"][:d], PATCH
    )
    t = torch.cat([weights["cls_token"][..., :d].expand(len(x), -1, -1), patches.flatten(2).transpose(1, 2)], dim=1)
    t = t + weights["pos_embed"][..., :d]
    side = patches.shape[-1]
    place = torch.arange(side * side)
    rows, columns = (
        f(place[None], place[:, None]).clamp(-14, 14) + 15
        for f in (lambda a, b: a // side - b // side, lambda a, b: a % side - b % side)
    )
    rows, columns = F.pad(rows, (1, 0, 1, 0)), F.pad(columns, (1, 0, 1, 0))
    for i, block in enumerate(stage.blocks):
        at, width = f"blocks.{i}.", 3 * block.qk
        weight, bias = weights[f"{at}attn.qkv.weight"][:, :d], weights[f"{at}attn.qkv.bias"][:width]
        weight = torch.cat([weight[part:width:3] for part in range(3)])
        qkv = F.linear(norm(f"{at}attn_layer_norm", t), weight, bias)
        q, k, v = qkv.unflatten(-1, (3, block.heads, -1)).permute(2, 0, 3, 1, 4)
        vectors = {
            part: weights[f"{at}attn.rel_pos_embed_{part}.embeddings_table_v"][rows]
            + weights[f"{at}attn.rel_pos_embed_{part}.embeddings_table_h"][columns]
            for part in "kv"
        }
        logits = (q @ k.transpose(-2, -1) + torch.einsum("bhid,ijd->bhij", q, vectors["k"])) * (
            block.qk // block.heads
        ) ** -0.5
        attention = logits.softmax(-1)
        out = attention @ v + torch.einsum("bhij,ijd->bhid", attention, vectors["v"])
        out = out.transpose(1, 2).flatten(2)
        t = t + F.linear(out, weights[f"{at}attn.proj.weight"][:d, : block.v], weights[f"{at}attn.proj.bias"][:d])
        hidden = F.gelu(
            F.linear(
                norm(f"{at}ffn_layer_norm", t),
                weights[f"{at}fc1.weight"][: block.mlp, :d],
                weights[f"{at}fc1.bias"][: block.mlp],
            )
        )
        t = t + F.linear(hidden, weights[f"{at}fc2.weight"][:d, : block.mlp], weights[f"{at}fc2.bias"][:d])
    return F.linear(norm("norm", t)[:, 1:].mean(1), weights["head.weight"][:, :d], weights["head.bias"])


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Tensor], Path]:
    """A superformer wider and deeper than the nano space, saved as the released code saves: with its arguments."""
    weights = released(dim=96, depth=7, qkv=96, mlp=384)
    file = tmp_path_factory.mktemp("autoformer") / "supernet.pth"
    torch.save({"model": weights, "epoch": 499, "args": argparse.Namespace(gp=True)}, file)
    return weights, file


def x(count: int = 3) -> Tensor:
    return torch.randn(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


def test_every_network_of_a_superformer_is_the_released_one(checkpoint: tuple[dict[str, Tensor], Path]) -> None:
    weights, file = checkpoint
    found = export.import_checkpoint(file, "autoformer", space=SPACE)
    assert found.kind == "superformer"
    assert isinstance(found.model, Superformer)
    rng = np.random.default_rng(0)
    archs = [SPACE.smallest, SPACE.largest, *(SPACE.sample(rng) for _ in range(8))]
    assert len({block.heads for arch in archs for block in arch.stages[0].blocks}) == 3
    with torch.no_grad():
        for arch in archs:
            expected = reference(weights, arch, x())
            assert expected.std() > 0.1
            torch.testing.assert_close(found.model(x(), arch), expected, rtol=1e-4, atol=1e-4)


def test_networks_cut_out_are_the_released_ones(checkpoint: tuple[dict[str, Tensor], Path]) -> None:
    """As they were retrained: in the superformer's shapes."""
    weights, file = checkpoint
    arch = SPACE.sample(np.random.default_rng(3))
    found = export.import_checkpoint(file, "autoformer", arch=arch)
    assert found.kind == "network"
    assert isinstance(found.model, Backbone)
    assert found.model.arch == arch
    with torch.no_grad():
        torch.testing.assert_close(found.model(x()), reference(weights, arch, x()), rtol=1e-4, atol=1e-4)


def test_a_single_network_is_known_by_its_shapes(tmp_path: Path) -> None:
    weights = released(dim=48, depth=3, qkv=32, mlp=100)
    torch.save(weights, tmp_path / "net.pth")
    found = export.import_checkpoint(tmp_path / "net.pth", "autoformer")
    assert found.kind == "network"
    arch = found.model.arch
    assert [(b.heads, b.qk, b.mlp) for b in arch.stages[0].blocks] == [(2, 32, 100)] * 3
    assert found.model.img_size == (SIDE, SIDE)
    with torch.no_grad():
        torch.testing.assert_close(found.model(x()), reference(weights, arch, x()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "dim", "depth"), [("tiny", 256, 14), ("small", 448, 14), ("base", 640, 16)])
def test_the_released_superformers_are_known_by_their_shapes(name: str, dim: int, depth: int) -> None:
    options = {"side": 224, "patch": 16, "classes": 1000, "device": "meta"}
    found = Released(released(dim, depth, dim, 4 * dim, 64, **options))
    space = found.space()
    assert space is not None
    assert space.name == f"autoformer-{name}"
    assert (found.img_size, found.num_classes, found.in_chans) == (224, 1000, 3)
    # and hold everything that the space and the published network need
    with torch.device("meta"):
        assert found.network(zoo.load(f"autoformer-{name}"), 224).arch == zoo.load(f"autoformer-{name}")
    assert Released(released(dim, depth - 1, dim, 4 * dim, 64, **options)).space() is None


def test_what_does_not_fit_is_refused(checkpoint: tuple[dict[str, Tensor], Path], tmp_path: Path) -> None:
    weights, file = checkpoint
    wide = spaces.load("autoformer-tiny").smallest
    cases: list[tuple[dict[str, Any], str]] = [
        ({"arch": wide}, "the checkpoint is of another patch"),
        (
            {"arch": spaces.load("vitas-nano", img_size=SIDE, patch=PATCH).smallest},
            "the checkpoint is of another positions",
        ),
        ({"space": spaces.load("s3-nano")}, "the checkpoint is of another family"),
        ({"space": SPACE, "img_size": 32}, "has no part of the shape needed"),
        ({"space": SPACE, "arch": SPACE.smallest}, "one of them"),
    ]
    for options, error in cases:
        with pytest.raises(ValueError, match=error):
            export.import_checkpoint(file, "autoformer", **options)
    with pytest.raises(ValueError, match=r"no checkpoint of s3's release; got .*; allowed: --as autoformer"):
        export.import_checkpoint(file, "s3")
    with pytest.raises(ValueError, match="unknown publisher"):
        export.import_checkpoint(file, "vitas")  # type: ignore[arg-type]
    shallow = {name: tensor for name, tensor in weights.items() if not name.startswith("blocks.6.")}
    deep = SPACE.largest
    torch.save({n: t for n, t in shallow.items() if not n.startswith(("blocks.5.", "blocks.4."))}, tmp_path / "few.pth")
    with pytest.raises(ValueError, match="fewer blocks; got 6; allowed: at most 4"):
        export.import_checkpoint(tmp_path / "few.pth", "autoformer", arch=deep)
    torch.save({n: t for n, t in shallow.items() if n != "blocks.1.fc2.bias"}, tmp_path / "hole.pth")
    with pytest.raises(ValueError, match=r"lacks a tensor; .* blocks\.1\.fc2\.bias among them"):
        export.import_checkpoint(tmp_path / "hole.pth", "autoformer", arch=SPACE.smallest)


def test_the_command(
    checkpoint: tuple[dict[str, Tensor], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights, file = checkpoint
    (tmp_path / "space.yaml").write_text(SPACE.to_yaml())
    words = ("import", str(file), "--as", "autoformer")
    code, out, _ = run(capsys, *words, "--space", str(tmp_path / "space.yaml"), "--out", str(tmp_path / "super"))
    assert code == 0
    assert "is a superformer of the space autoformer-nano" in out
    loaded = Superformer.load(tmp_path / "super").eval()
    arch = SPACE.smallest
    with torch.no_grad():
        torch.testing.assert_close(loaded(x(), arch), reference(weights, arch, x()), rtol=1e-4, atol=1e-4)
    code, out, _ = run(capsys, *words, "--arch", arch.to_json(), "--out", str(tmp_path / "net"), "--json")
    assert code == 0
    said = json.loads(out)
    assert (said["kind"], said["arch"]) == ("network", arch.id)
    assert (tmp_path / "net" / "config.json").exists()
    code, out, _ = run(capsys, *words)
    assert "is a single network, vit-" in out
    code, _, err = run(capsys, "import", str(tmp_path / "none.pth"), "--as", "s3")
    assert code == 2
    assert err.startswith("error: weights are a file")
    assert err.count("\n") == 1


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemError('code in a checkpoint was run')",)


def test_no_code_of_a_checkpoint_is_run(tmp_path: Path) -> None:
    torch.save({"model": released(48, 2, 32, 64), "args": _Bomb()}, tmp_path / "bomb.pth")
    with pytest.raises(ValueError, match="weights cannot be read") as refused:
        export.import_checkpoint(tmp_path / "bomb.pth", "autoformer")
    assert "\n" not in str(refused.value)
    for name, content in (("text.pth", b"hello"), ("empty.pth", b""), ("cut.safetensors", b"\x10\0\0\0\0\0\0\0{")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match="weights cannot be read"):
            export.import_checkpoint(tmp_path / name, "autoformer")
    torch.save({"model": {"a": 1}}, tmp_path / "numbers.pth")
    with pytest.raises(ValueError, match="no tensors under names"):
        export.import_checkpoint(tmp_path / "numbers.pth", "autoformer")
