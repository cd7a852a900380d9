"""Published checkpoints as our models: what a file holds, and the superformer or the network itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from torch import Tensor

from vitruvius import zoo
from vitruvius.arch import Arch, ImageSize, refuse, require_choice
from vitruvius.export import _s3
from vitruvius.export._autoformer import Released, is_autoformer
from vitruvius.export._bundle import IMAGENET, About, Bundle, export_model
from vitruvius.export._weights import read_weights
from vitruvius.models import Backbone
from vitruvius.spaces import Space
from vitruvius.superformer import Superformer

__all__ = ["Imported", "Publisher", "import_checkpoint"]

Publisher = Literal["autoformer", "s3"]


@dataclass(frozen=True)
class Imported:
    """What a file holds, in ours."""

    kind: Literal["superformer", "network"]
    model: Superformer | Backbone
    name: str
    """Of the space, or of the network: the zoo's, if it is known there."""
    source: str

    def save(self, folder: str | Path, *, onnx: bool = False) -> Bundle | None:
        """A superformer as `Superformer.load` reads it; a network as an exported folder."""
        if isinstance(self.model, Superformer):
            self.model.save(folder)
            return None
        mean, std = IMAGENET.get(self.model.in_chans, ((0.5,) * self.model.in_chans, (0.5,) * self.model.in_chans))
        facts = {"weights": f"imported from {self.source}", "normalisation": "ImageNet's, as published"}
        return export_model(self.model, folder, About(name=self.name, mean=mean, std=std, facts=facts), onnx=onnx)

    def summary(self) -> dict[str, Any]:
        counted = sum(parameter.numel() for parameter in self.model.parameters())
        said: dict[str, Any] = {"kind": self.kind, "name": self.name}
        if isinstance(self.model, Backbone):
            said["arch"] = self.model.arch.id
        size = list(self.model.img_size)
        return said | {"parameters": counted, "num_classes": self.model.num_classes, "img_size": size}


def import_checkpoint(
    file: str | Path,
    publisher: Publisher,
    *,
    arch: Arch | None = None,
    space: Space | None = None,
    img_size: ImageSize | None = None,
) -> Imported:
    """A checkpoint of AutoFormer's or S3's release, or timm's of S3.

    arch: the network to be cut out of an AutoFormer superformer. Retrained AutoFormers are saved in a superformer's
        shapes, so that they need it too.
    space: of an AutoFormer superformer that is none of the three released ones.
    img_size: of the images; read off the file where it tells, else 224.
    """
    require_choice("publisher", publisher, get_args(Publisher))
    if arch is not None and space is not None:
        refuse("a file is imported as a network or as a superformer", "an arch and a space", "one of them")
    weights = read_weights(file)
    _check_publisher(weights, publisher, file)
    if publisher == "s3":
        return _import_s3(weights, arch, space, img_size, Path(file).name)
    return _import_autoformer(Released(weights), arch, space, img_size, Path(file).name)


def _check_publisher(weights: Mapping[str, Tensor], publisher: str, file: str | Path) -> None:
    looks = [name for name, is_it in (("autoformer", is_autoformer), ("s3", _s3.is_s3)) if is_it(weights)]
    if publisher not in looks:
        allowed = f"--as {looks[0]}" if looks else "a checkpoint with their names of tensors"
        refuse(f"the file is no checkpoint of {publisher}'s release", str(file), allowed)


def _import_s3(
    weights: Mapping[str, Tensor], arch: Arch | None, space: Space | None, img_size: ImageSize | None, source: str
) -> Imported:
    if space is not None:
        refuse("S3 published no superformer", space.name, "no space")
    size = img_size or _s3.image_side(weights) or 224
    found = _s3.arch_of(weights)
    entry = _s3.published(found, size)
    found, name = (found, found.id) if entry is None else (entry.arch, entry.name)
    if arch is not None and arch != found:
        refuse("the checkpoint is of another architecture", arch.id, f"{found.id} ({name}), or none")
    return Imported("network", _s3.network(weights, found, size), name, source)


def _import_autoformer(
    released: Released, arch: Arch | None, space: Space | None, img_size: ImageSize | None, source: str
) -> Imported:
    size = img_size or released.img_size or 224
    if arch is None and (space := space or released.space()) is not None:
        return Imported("superformer", released.superformer(space, size), space.name, source)
    arch = arch or released.largest()
    return Imported("network", released.network(arch, size), _known(arch), source)


def _known(arch: Arch) -> str:
    return next((entry.name for entry in zoo.entries() if entry.arch == arch), arch.id)
