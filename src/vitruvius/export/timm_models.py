"""Our networks as timm's models: `vitruvius_<name of the zoo>`, and `vitruvius` for any architecture or folder.

Importing this registers them (see `_register`). Everything goes through timm's own `build_model_with_cfg`, so that
`features_only`, `pretrained`, another number of classes or channels mean what they mean there. The networks have no
published weights of ours; `pretrained=True` is for exported folders.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

from timm.models import _factory, build_model_with_cfg, generate_default_cfgs, register_model
from timm.models._features import FeatureGetterNet
from torch import Tensor, nn

from vitruvius import zoo
from vitruvius.arch import Arch, ImageSize, refuse

__all__: list[str] = []  # timm adds what it registers

ARCH, CONFIG, WEIGHTS = "arch.json", "config.json", "model.safetensors"
"""The files of an exported folder that loading needs."""

_INPUT = {"fixed_input_size": True, "interpolation": "bicubic", "crop_pct": 0.9, "classifier": "head"}


def first_conv(arch: Arch) -> str:
    """The name of the layer that sees the images' channels."""
    return "patch_embed.conv1.0" if arch.patch.stem else "patch_embed"


def timm_name(name: str) -> str:
    """timm's name of a network of the zoo."""
    return f"vitruvius_{name.replace('-', '_')}"


def _zoo_cfg(entry: zoo.Entry) -> dict[str, Any]:
    side = next(iter(entry.printed))
    return {**_INPUT, "input_size": (3, side, side), "first_conv": first_conv(entry.arch), "license": "apache-2.0"}


default_cfgs = generate_default_cfgs(
    {"vitruvius": dict(_INPUT), **{timm_name(entry.name): _zoo_cfg(entry) for entry in zoo.entries()}}
)


class Features(FeatureGetterNet):
    """Takes whole networks' weights, of which it leaves what it has pruned."""

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        own = self.state_dict()
        if not any(name.startswith("model.") for name in state_dict):
            state_dict = {f"model.{name}": tensor for name, tensor in state_dict.items() if f"model.{name}" in own}
        return super().load_state_dict(state_dict, *args, **kwargs)


def _create(variant: str, arch: Arch, pretrained: bool, options: dict[str, Any]) -> nn.Module:
    from vitruvius.models import FAMILY_MODELS

    taps = arch.depth if FAMILY_MODELS[arch.family].taps == "block" else len(arch.stages)
    if options.get("features_only") and not taps:
        refuse("features need a block to be taken from", arch.id, "an architecture with blocks")

    def make(**given: Any) -> nn.Module:
        return _make(arch, **given)

    made: nn.Module = build_model_with_cfg(
        make,
        variant,
        pretrained,
        pretrained_filter_fn=_fitting,
        feature_cfg={"out_indices": tuple(range(taps)), "feature_cls": Features},
        **options,
    )
    return made


def _make(arch: Arch, *, global_pool: str | None = None, **options: Any) -> nn.Module:
    from vitruvius.models import Backbone, build

    model = build(arch, **options)
    assert isinstance(model, Backbone)
    if global_pool not in (None, model.global_pool):
        model.reset_classifier(model.num_classes, global_pool)
    return model


def _fitting(weights: Mapping[str, Tensor], model: nn.Module) -> Mapping[str, Tensor]:
    """Weights of another image size, resampled; windows stay as they are, and zeros fill the last ones (as in timm)."""
    import torch

    from vitruvius.models import Backbone, build
    from vitruvius.training.resample import resampled

    assert isinstance(model, Backbone)
    size: ImageSize = tuple(model.pretrained_cfg["input_size"][1:])
    if size == model.img_size:
        return dict(weights)
    with torch.device("meta"):
        old = build(model.arch, num_classes=model.num_classes, img_size=size, in_chans=model.in_chans)
    assert isinstance(old, Backbone)
    return resampled(weights, old, model)


def _entry_point(entry: zoo.Entry) -> Callable[..., nn.Module]:
    def create(pretrained: bool = False, **options: Any) -> nn.Module:
        return _create(timm_name(entry.name), entry.arch, pretrained, options)

    create.__name__ = create.__qualname__ = timm_name(entry.name)
    create.__doc__ = f"{entry.name} ({entry.source})."
    return create


def vitruvius(
    pretrained: bool = False,
    arch: Arch | Mapping[str, Any] | str | Path | None = None,
    pretrained_cfg: Any = None,
    **options: Any,
) -> nn.Module:
    """Any architecture: a record, its JSON as a mapping, text or file, a name of the zoo, or an exported folder.

    A folder also says classes, channels and image size, and with `pretrained=True` gives its weights.
    """
    if arch is None:
        refuse("the model 'vitruvius' needs an architecture", "none", "arch=: a zoo name, JSON, a file, or a folder")
    if isinstance(arch, str | Path) and os.path.isdir(arch):  # which JSON text may be asked, unlike Path's
        folder = Path(arch)
        return _create(
            "vitruvius", _arch_of(folder), pretrained, {"pretrained_cfg": pretrained_cfg or _cfg_of(folder), **options}
        )
    if isinstance(arch, str | Path):
        arch = zoo.read(str(arch))
    record = arch if isinstance(arch, Arch) else Arch.from_dict(arch)
    overlay = {"first_conv": first_conv(record), **(options.pop("pretrained_cfg_overlay", None) or {})}
    options |= {"pretrained_cfg": pretrained_cfg, "pretrained_cfg_overlay": overlay}
    return _create("vitruvius", record, pretrained, options)


def _arch_of(folder: Path) -> Arch:
    if not (folder / ARCH).is_file():
        refuse("a folder without an architecture is no exported network", str(folder), f"a folder with {ARCH}")
    return Arch.from_json((folder / ARCH).read_text())


def _cfg_of(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / CONFIG).read_text())
        cfg: dict[str, Any] = config["pretrained_cfg"]
    except (OSError, ValueError, KeyError) as error:
        refuse(f"an exported folder's {CONFIG} cannot be read ({error})", str(folder), "what `vitruvius export` wrote")
    cfg |= {key: config[key] for key in ("num_classes", "label_names") if key in config}
    return {**cfg, "architecture": "vitruvius", "file": str(folder / WEIGHTS)}


def _folders_too(load: Callable[..., Any]) -> Callable[..., Any]:
    """`create_model(checkpoint_path=...)` takes files only, and hands the path to no model."""

    @wraps(load)
    def load_checkpoint(model: nn.Module, checkpoint_path: str | Path, *args: Any, **options: Any) -> Any:
        inside = Path(checkpoint_path) / WEIGHTS
        return load(model, str(inside if inside.is_file() else checkpoint_path), *args, **options)

    return load_checkpoint


def _register() -> None:
    register_model(vitruvius)
    for entry in zoo.entries():
        register_model(_entry_point(entry))
    _factory.load_checkpoint = _folders_too(_factory.load_checkpoint)


_register()
