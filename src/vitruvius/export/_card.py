"""The model card: a README that says what the network is, what it costs, what it was trained on, and how to load it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from vitruvius import costs
from vitruvius.arch import Arch, Block
from vitruvius.models import Backbone
from vitruvius.training import Run

if TYPE_CHECKING:
    from vitruvius.export._bundle import About

__all__ = ["card", "facts_of"]


def facts_of(run: Run) -> dict[str, Any]:
    """The rows of the card's table on data and training, from a run's record."""
    data, config = run.record["data"], run.config
    facts = {
        "data": data["source"],
        "images": f"train {data['train']:,}, search-validation {data['val']:,}, test {data['test']:,}",
        "split hash": f"`{data['hash']}`",
        "kind of run": run.kind,
        "recipe": config.recipe or "none",
        "epochs": config.epochs,
        "batch": config.batch_size,
        "seed": config.seed,
        "trained with": ", ".join(f"{name} {found}" for name, found in run.record["versions"].items()),
    }
    if getattr(config, "superformer", None):
        facts["started from"] = f"the slices of the superformer in `{config.superformer}`"
    return facts


def card(model: Backbone, about: About, checks: Mapping[str, float], opset: int | None) -> str:
    parts = [
        _front(about),
        f"# {about.name}",
        f"A vision transformer of the family `{model.arch.family}` (`{model.arch.id}`), "
        f"made by Vitruvius {version('vitruvius')}.",
        "## Costs and accuracy",
        _table(("", ""), _numbers(model, about)),
        "## Architecture",
        _described(model.arch),
        _table(("stage", "width", "blocks", "mixer", "heads", "q, k", "v", "MLP"), _block_rows(model.arch)),
        *(("## Data and training", _table(("", ""), about.facts.items())) if about.facts else ()),
        "## How to load it",
        _loading(model, about, opset),
        "## Checked",
        "Each file was loaded back when it was written, and its logits compared with the network's own on random "
        "images (largest difference, as a part of the largest logit where that is above 1):",
        _table(
            ("file", "difference"),
            ((f"`{what}`", f"{found:.1e}" if found else "none") for what, found in checks.items()),
        ),
        "## Licence",
        f"The weights: {about.license or 'not stated by whoever exported them'}. "
        "Whoever shares them answers for the images that they were trained on. Vitruvius, the code, is Apache-2.0.",
    ]
    return "\n\n".join(parts) + "\n"


def _front(about: About) -> str:
    """What the hub reads."""
    lines = ["---", "library_name: timm", "tags:", "- image-classification", "- timm", "- vitruvius"]
    lines += [f"license: {json.dumps(about.license)}"] if about.license else []
    return "\n".join([*lines, "---"])


def _numbers(model: Backbone, about: About) -> Iterable[tuple[str, Any]]:
    height, width = model.img_size
    total = costs.cost(model.arch, img_size=model.img_size, num_classes=model.num_classes, in_chans=model.in_chans)
    yield "input", f"{model.in_chans} x {height} x {width}"
    yield "classes", model.num_classes
    yield "parameters", f"{total.params:,}"
    yield "MACs of one image", f"{total.macs:,}"
    for part, found in about.accuracies.items():
        yield f"{part}: top-1, top-5", f"{found['top1']:.2f} %, {found['top5']:.2f} %"


def _described(arch: Arch) -> str:
    patch = arch.patch
    stem = f" behind a convolutional stem of {patch.stem} channels" if patch.stem else ""
    token = "with a class token" if arch.class_token else "no class token"
    return (
        f"Patches of {patch.size} pixels, {patch.stride} apart{stem}; positions: {arch.positions}; {token}; pooled by "
        f"{arch.pool}. The record is `arch.json`."
    )


def _block_rows(arch: Arch) -> Iterable[tuple[Any, ...]]:
    """One row for blocks in a row that are equal."""
    for s, stage in enumerate(arch.stages, start=1):
        if not stage.blocks:
            yield (s, stage.dim, "none", *[""] * 5)
        first = 1
        for block, count in _runs(stage.blocks):
            reach = block.window or block.reduction
            mixer = f"{block.mixer} {reach}" if reach else block.mixer
            which = str(first) if count == 1 else f"{first}-{first + count - 1}"
            yield s, stage.dim, which, mixer, block.heads, block.qk, block.v, block.mlp
            first += count


def _runs(blocks: Sequence[Block]) -> list[tuple[Block, int]]:
    runs: list[tuple[Block, int]] = []
    for block in blocks:
        if runs and runs[-1][0] == block:
            runs[-1] = (block, runs[-1][1] + 1)
        else:
            runs.append((block, 1))
    return runs


def _loading(model: Backbone, about: About, opset: int | None) -> str:
    shape = f"{model.in_chans}, {model.img_size[0]}, {model.img_size[1]}"
    torch_part = """```python
import timm
import vitruvius  # registers the model with timm

model = timm.create_model("vitruvius", arch="FOLDER", checkpoint_path="FOLDER").eval()
model = timm.create_model("local-dir:FOLDER", pretrained=True).eval()  # the same, by timm's own way
features = timm.create_model("vitruvius", arch="FOLDER", checkpoint_path="FOLDER", features_only=True)
transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=model))
other = timm.create_model("local-dir:FOLDER", pretrained=True, num_classes=3)  # a new head; so with img_size, in_chans
```"""
    if opset is None:
        return torch_part
    onnx_part = f"""`model.onnx` (opset {opset}) takes `images` of (any number, {shape}) in float32 and gives `logits`.
Pixels go from 0 to 1, less each channel's mean {_numbers_of(about.mean)}, over its deviation {_numbers_of(about.std)}:

```python
import onnxruntime

session = onnxruntime.InferenceSession("FOLDER/model.onnx")
(logits,) = session.run(["logits"], {{"images": images}})
```"""
    return f"{torch_part}\n\n{onnx_part}"


def _numbers_of(values: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value:.4g}" for value in values) + ")"


def _table(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
