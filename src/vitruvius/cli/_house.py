"""Commands on records, spaces and costs, none of which need torch."""

from __future__ import annotations

import json
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from vitruvius import costs, spaces, zoo
from vitruvius.cli._common import (
    AsJson,
    Channels,
    Classes,
    Side,
    amount,
    app,
    escape,
    read_size,
    read_space,
    show,
)
from vitruvius.costs import Budget, short


@app.command("spaces", epilog="Example: vitruvius spaces vitas-v1")
def spaces_command(
    name: Annotated[str | None, typer.Argument(help="One space, to see its dimensions; or a YAML file.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the search spaces, or show the dimensions of one."""
    if name is None:
        rows = []
        for known in spaces.SPACES:
            space = spaces.load(known)
            params, macs = space.cost_range("params"), space.cost_range("macs")
            rows.append(
                {
                    "space": known,
                    "family": space.family,
                    "pixels": space.img_size,
                    "networks": space.networks if as_json else amount(space.networks),
                    "paths": space.size if as_json else amount(space.size),
                    "params": list(params) if as_json else ".. ".join(map(short, params)),
                    "MACs": list(macs) if as_json else ".. ".join(map(short, macs)),
                    "source": space.source,
                }
            )
        show(rows, as_json, right=("networks", "paths"))
        return
    space = read_space(name)
    if as_json:
        print(json.dumps(space.to_dict(), indent=1))
        return
    Console().print(
        f"[bold]{escape(space.name)}[/]  {escape(space.source)}\n"
        f"family {space.family}, images of {space.img_size} pixels, "
        f"{amount(space.networks)} networks on {amount(space.size)} paths"
    )
    print()
    rows = []
    for dimension, choices in space.dimensions.items():
        text = ", ".join(map(str, choices))
        if dimension.endswith(".depth"):
            stage = space.stages[int(dimension[5:].split(".")[0]) - 1]
            text += f" layers, of which {len(stage.skips)} may be skipped" if stage.skips else ""
        rows.append({"dimension": dimension, "choices": text})
    show(rows, False)


@app.command("zoo", epilog="Example: vitruvius zoo s3-tiny --json > s3-tiny.json")
def zoo_command(
    name: Annotated[str | None, typer.Argument(help="One architecture, to see it block by block.")] = None,
    notes: Annotated[
        bool, typer.Option("--notes", help="Say where ours and the papers' numbers differ, and why.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the published architectures with the papers' numbers beside ours."""
    if name is not None:
        entry = zoo.entry(name)
        if as_json:
            print(entry.arch.to_json(indent=1))
        else:
            _show_entry(entry)
        return
    rows = [_zoo_row(entry, img_size, notes, as_json) for entry in zoo.entries() for img_size in entry.printed]
    show(rows, as_json, right=("pixels", "params", "MACs", "paper's params", "paper's MACs", "paper's top-1"))
    if not as_json and not notes:
        print("* not ours to the printed digit: `vitruvius zoo --notes` says what was found. MACs are of one image.")


def _zoo_row(entry: zoo.Entry, img_size: int, notes: bool, as_json: bool) -> dict[str, Any]:
    ours, numbers, printed = costs.cost(entry.arch, img_size=img_size), entry.numbers(img_size), entry.printed[img_size]
    if as_json:
        row: dict[str, Any] = {"name": entry.name, "id": entry.arch.id, "img_size": img_size}
        row |= {"params": ours.params, "macs": ours.macs}
        row |= {f"paper_{metric}": float(text) for metric, text in printed.items()}
        row |= {f"{metric}_agrees": number.agrees for metric, number in numbers.items()}
        return {**row, "source": entry.source, "note": entry.note}
    row = {"name": entry.name, "pixels": img_size}
    row |= {"params": f"{ours.params / 1e6:.2f} M", "MACs": f"{ours.macs / 1e9:.2f} G"}
    for metric, title, unit in (("params", "paper's params", "M"), ("macs", "paper's MACs", "G")):
        number = numbers.get(metric)
        row[title] = None if number is None else f"{number.text} {unit}{'' if number.agrees else ' *'}"
    row |= {"paper's top-1": printed.get("top1"), "source": entry.source}
    return {**row, "note": entry.note} if notes else row


def _show_entry(entry: zoo.Entry) -> None:
    arch, console = entry.arch, Console()
    console.print(f"[bold]{entry.name}[/]  {escape(entry.source)}", highlight=False)
    for img_size, printed in entry.printed.items():
        row = _zoo_row(entry, img_size, notes=False, as_json=False)
        top1 = f"{printed['top1']} % top-1" if "top1" in printed else None
        theirs = ", ".join(filter(None, (row["paper's params"], row["paper's MACs"], top1)))
        console.print(f"{img_size} pixels: {row['params']}, {row['MACs']}; the paper's {theirs}", highlight=False)
    if entry.note:
        console.print(f"* {escape(entry.note)}", highlight=False)
    console.print(
        f"[bold]{arch.id}[/]  patch {arch.patch.size}/{arch.patch.stride}, positions {arch.positions}, pool {arch.pool}"
    )
    rows = []
    for s, stage in enumerate(arch.stages, start=1):
        for b, block in enumerate(stage.blocks, start=1):
            reach = block.window or block.reduction
            rows.append(
                {
                    "stage": s,
                    "dim": stage.dim,
                    "block": b,
                    "mixer": block.mixer + (f" {reach}" if reach else ""),
                    "heads": block.heads,
                    "q, k": block.qk,
                    "v": block.v,
                    "mlp": block.mlp,
                }
            )
    show(rows, False, right=("stage", "dim", "block", "heads", "q, k", "v", "mlp"))


@app.command("cost", epilog="Example: vitruvius cost s3-tiny --img-size 384")
def cost_command(
    arch: Annotated[str, typer.Argument(help="A zoo name, a JSON file, or JSON text.")],
    img_size: Side = None,
    num_classes: Classes = 1000,
    in_chans: Channels = 3,
    as_json: AsJson = False,
) -> None:
    """Count the parameters and MACs of an architecture, without building it."""
    record = zoo.read(arch)
    size = 224 if img_size is None else read_size(img_size)
    total = costs.cost(record, img_size=size, num_classes=num_classes, in_chans=in_chans)
    row = {"id": record.id, "img_size": size, "num_classes": num_classes, "params": total.params, "macs": total.macs}
    shown = row if as_json else {**row, "params": f"{total.params:,}", "macs": f"{total.macs:,}"}
    show([shown], as_json, right=("params", "macs"))


@app.command("sample", epilog="Example: vitruvius sample vitas-v1 -n 10 --macs 1.2G..1.3G --seed 0")
def sample_command(
    space: Annotated[str, typer.Argument(help="A space's name, or a YAML file.")],
    n: Annotated[int, typer.Option("-n", min=1, help="How many architectures.")] = 10,
    macs: Annotated[str | None, typer.Option(help="Window of MACs: 1.2G..1.3G, <=1.3G, 1.3G+-1%.")] = None,
    params: Annotated[str | None, typer.Option(help="Window of parameters: 5M..6M, <=6M.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed: equal seeds give equal architectures.")] = 0,
    img_size: Side = None,
    num_classes: Classes = 1000,
    in_chans: Channels = 3,
    as_json: AsJson = False,
) -> None:
    """Draw random architectures from a space, inside a budget if one is given."""
    chosen = read_space(space)
    rng = np.random.default_rng(seed)
    window = {metric: text for metric, text in (("macs", macs), ("params", params)) if text is not None}
    counting: dict[str, Any] = {
        "img_size": chosen.img_size if img_size is None else read_size(img_size),
        "num_classes": num_classes,
        "in_chans": in_chans,
    }
    if window:
        vectors = chosen.budget_sampler(Budget.of(window), **counting).vectors(rng, n)
    else:
        vectors = chosen.sample_vectors(rng, n)
    total = costs.cost(vectors, space=chosen, **counting)
    rows: list[dict[str, Any]] = []
    for arch, p, m in zip(chosen.decode_many(vectors), total.params.tolist(), total.macs.tolist(), strict=True):
        row: dict[str, Any] = {"id": arch.id, "params": p, "macs": m}
        if as_json:
            row |= {"space": chosen.name, "seed": seed, **counting, "arch": arch.to_dict()}
        else:
            stages = arch.stages
            row |= {
                "params": short(p),
                "macs": short(m),
                "patch": arch.patch.size,
                "dims": " ".join(str(stage.dim) for stage in stages),
                "depths": " ".join(str(len(stage.blocks)) for stage in stages),
            }
        rows.append(row)
    show(rows, as_json, right=("params", "macs", "patch"))
