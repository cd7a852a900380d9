"""A bundle: a folder that timm opens as it opens one of its own from the hub, and everything a stranger needs beside.

`model.safetensors`, `arch.json`, `config.json` (timm's hub layout), `README.md` (the model card), and `model.onnx`.
Everything is loaded back and compared before the folder takes its name; a folder that is there under its name is whole.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

from vitruvius.arch import Arch, ImageSize, refuse
from vitruvius.data import default_crop_pct
from vitruvius.export import _card, _onnx
from vitruvius.export._weights import read_weights
from vitruvius.export.timm_models import ARCH, CONFIG, WEIGHTS, first_conv
from vitruvius.extras import require_extra
from vitruvius.files import sync
from vitruvius.models import Backbone, build
from vitruvius.training import Run, open_run
from vitruvius.training.run import RECORD, read_record

__all__ = ["TOLERANCE", "About", "Bundle", "export_model", "export_run", "export_weights"]

TOLERANCE = 1e-4
"""By how much a logit may differ, in float32, from what was exported: of the largest logit, where that is above 1."""
CARD, ONNX = "README.md", "model.onnx"
FOUND = "found"
"""The folder in which `vitruvius run` trains what it found."""
BATCHES = (1, 8)
IMAGENET = {3: ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), 1: ((0.449,), (0.226,))}


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What the files say of a network beside its architecture and its weights."""

    name: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    labels: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """For the card: the rows of its table on data and training."""
    accuracies: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By part ("validation", "test"): top1, top5, loss."""
    license: str | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    folder: Path
    arch: Arch
    checks: dict[str, float]
    """What was loaded back, and the largest difference of a logit."""
    opset: int | None
    """None: there is no ONNX file."""

    def summary(self) -> dict[str, Any]:
        sizes = {file.name: file.stat().st_size for file in sorted(self.folder.iterdir())}
        return {
            "folder": str(self.folder),
            "arch": self.arch.id,
            "bytes": sizes,
            "checks": self.checks,
            "opset": self.opset,
        }


def export_run(
    run: Run | str | Path, out: str | Path | None = None, *, onnx: bool = True, license: str | None = None
) -> Bundle:
    """The network of a finished run (retrain, finetune, or a journey's found one); into its folder `export` unless said
    otherwise."""
    folder = run.folder if isinstance(run, Run) else Path(run)
    if not isinstance(run, Run):
        run = open_run(folder / FOUND if _is_journey(folder) else folder)
    model, data = run.model(), run.record["data"]
    if {"mean", "std", "class_names"} <= data.keys():
        statistics = {"mean": data["mean"], "std": data["std"], "labels": data["class_names"]}
    else:  # of a run by an earlier version: its images know
        search = run.data.search
        statistics = {"mean": search.mean, "std": search.std, "labels": search.classes}
    about = About(
        name=_name_of(run.folder.resolve()),
        **{key: tuple(value) for key, value in statistics.items()},
        facts=_card.facts_of(run),
        accuracies={part: run.result[part]["accuracy"] for part in ("validation", "test") if part in run.result},
        license=license,
    )
    return export_model(model, folder / "export" if out is None else out, about, onnx=onnx)


def _is_journey(folder: Path) -> bool:
    return (folder / RECORD).exists() and read_record(folder)["kind"] == "run"


def _name_of(folder: Path) -> str:
    """A journey's network is called as the journey is."""
    return folder.parent.name if folder.name == FOUND and _is_journey(folder.parent) else folder.name


def export_weights(
    arch: Arch,
    weights: str | Path,
    out: str | Path,
    *,
    img_size: ImageSize = 224,
    name: str | None = None,
    onnx: bool = True,
    license: str | None = None,
) -> Bundle:
    """An architecture and a file of its weights, in our names. Classes and channels are those of the weights."""
    tensors = {key: tensor for key, tensor in read_weights(weights).items() if not key.startswith("token_head.")}
    head, conv = tensors.get("head.weight"), tensors.get(f"{first_conv(arch)}.weight")
    if conv is None:
        refuse("the weights are not of this architecture", str(weights), f"tensors named as in a model of {arch.id}")
    classes = 0 if head is None else len(head)
    model = build(arch, num_classes=classes, img_size=img_size, in_chans=conv.shape[1])
    assert isinstance(model, Backbone)
    load_strictly(model, tensors, weights)
    mean, std = IMAGENET.get(model.in_chans, ((0.5,) * model.in_chans, (0.5,) * model.in_chans))
    facts = {"weights": f"from the file {Path(weights).name}", "normalisation": "ImageNet's, as nothing else was said"}
    about = About(name=name or arch.id, mean=mean, std=std, facts=facts, license=license)
    return export_model(model, out, about, onnx=onnx)


def load_strictly(model: Backbone, tensors: Mapping[str, Tensor], source: str | Path) -> None:
    """Weights into a model that must have exactly those, or one line."""
    own = model.state_dict()
    for name in {**own, **tensors}:
        shapes = [tuple(each[name].shape) if name in each else "nothing" for each in (tensors, own)]
        if shapes[0] != shapes[1]:
            refuse(f"the weights in {str(source)!r} do not fit {model.arch.id}: {name}", shapes[0], shapes[1])
    model.load_state_dict(tensors)


def export_model(model: Backbone, out: str | Path, about: About, *, onnx: bool = True) -> Bundle:
    """Writes, loads back, compares, and only then gives the folder its name. An earlier bundle there is replaced."""
    out = Path(out)
    if onnx:
        require_extra("onnx", "an ONNX file")
    _check_place(out)
    model = deepcopy(model).float().cpu().eval()
    model.drop_token_head()
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        _write(partial, model, about)
        checks = _check(partial, model, about, onnx)
        (partial / CARD).write_text(_card.card(model, about, checks, _onnx.OPSET if onnx else None))
        for file in partial.iterdir():
            sync(file)
        _take_place(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Bundle(out, model.arch, checks, _onnx.OPSET if onnx else None)


def _check_place(out: Path) -> None:
    if not out.exists():
        return
    if not out.is_dir() or (any(out.iterdir()) and not (out / ARCH).is_file()):
        refuse("an export replaces only an export", str(out), "a new folder, or one that an export has written")


def _take_place(partial: Path, out: Path) -> None:
    old = out.with_name(f".{out.name}.{os.getpid()}.old")
    if out.exists():
        out.rename(old)
    try:
        partial.rename(out)
    except OSError:
        if old.exists():
            old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)
    sync(out.parent)


def _write(folder: Path, model: Backbone, about: About) -> None:
    tensors = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / ARCH).write_text(model.arch.to_json(indent=1) + "\n")
    (folder / CONFIG).write_text(json.dumps(timm_config(model, about), indent=1) + "\n")


def timm_config(model: Backbone, about: About) -> dict[str, Any]:
    """What timm's hub layout says of a model: how to make it, and how its images are prepared."""
    labels = {"label_names": list(about.labels)} if len(about.labels) == model.num_classes > 0 else {}
    return {
        "architecture": "vitruvius",
        "num_classes": model.num_classes,
        "num_features": model.num_features,
        "global_pool": model.global_pool,
        **labels,
        "model_args": {"arch": model.arch.to_dict()},
        "pretrained_cfg": {
            "custom_load": False,
            "input_size": [model.in_chans, *model.img_size],
            "fixed_input_size": True,
            "interpolation": "bicubic",
            "crop_pct": default_crop_pct(model.img_size),
            "crop_mode": "center",
            "mean": list(about.mean),
            "std": list(about.std),
            "num_classes": model.num_classes,
            "pool_size": None,
            "first_conv": first_conv(model.arch),
            "classifier": "head",
            **({"license": about.license} if about.license else {}),
        },
        "vitruvius": {"version": version("vitruvius"), "arch_id": model.arch.id},
    }


def _check(folder: Path, model: Backbone, about: About, onnx: bool) -> dict[str, float]:
    """Everything is loaded back as a user would, and compared."""
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(n, model.in_chans, *model.img_size, generator=generator) for n in BATCHES]
    with torch.no_grad():
        expected = [model(batch) for batch in batches]
        loaded = timm.create_model("vitruvius", arch=str(folder), checkpoint_path=str(folder)).eval()
        checks = {WEIGHTS: max(map(_difference, [loaded(batch) for batch in batches], expected))}
    if onnx:
        said = {"arch": model.arch.to_json(), "mean": about.mean, "std": about.std, "labels": list(about.labels)}
        about_it = {key: _text(value) for key, value in said.items()}
        _onnx.write_onnx(_onnx.export_program(model), folder / ONNX, about_it)
        found = _onnx.run_onnx(folder / ONNX, batches)
        checks |= {f"{ONNX}, batch {n}": _difference(*pair) for n, *pair in zip(BATCHES, found, expected, strict=True)}
    for what, difference in checks.items():
        if not difference <= TOLERANCE:
            rule = f"{what} was loaded back, and its logits are not those of the network"
            refuse(rule, f"a difference of {difference:.2g}", f"up to {TOLERANCE}")
    return checks


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _difference(found: Tensor, expected: Tensor) -> float:
    """The largest, as a part of the largest logit where that is above 1; not a number counts as infinite."""
    if found.shape != expected.shape or not torch.isfinite(found).all():
        return float("inf")
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1.0))
