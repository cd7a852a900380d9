"""Commands that measure latency, and that predict it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from vitruvius import zoo
from vitruvius.arch import refuse
from vitruvius.cli._common import AsJson, Channels, Classes, Side, app, escape, read_size, read_space, show
from vitruvius.costs import written

_BUSY = 0.2
"""A spread from which on something else is likely to be running."""


@app.command("latency", epilog="Example: vitruvius latency deit-tiny s3-tiny --threads 2")
def latency_command(
    archs: Annotated[
        list[str] | None,
        typer.Argument(help="Zoo names, JSON files, or JSON text: measured side by side.", show_default=False),
    ] = None,
    space: Annotated[
        str | None, typer.Option(help="Build a predictor for this space: a name, or a YAML file.", show_default=False)
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Where the predictor is written.", show_default=False)] = None,
    predictor: Annotated[
        Path | None,
        typer.Option(help="A saved predictor: its word beside the measurement, in its setting.", show_default=False),
    ] = None,
    img_size: Side = None,
    batch: Annotated[int, typer.Option(help="Images at a time; latency is of one batch.")] = 1,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    dtype: Annotated[str, typer.Option(help="float32, float16 or bfloat16.")] = "float32",
    compiled: Annotated[bool, typer.Option("--compile", help="Through torch.compile.")] = False,
    runtime: Annotated[str, typer.Option(help="torch, or onnx for ONNX Runtime.")] = "torch",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    clock: Annotated[
        str, typer.Option(help="wall; or cpu: processor time of one thread, which other programs disturb less.")
    ] = "wall",
    repeats: Annotated[int, typer.Option(help="Repeats, of which the median counts.")] = 31,
    parts: Annotated[int, typer.Option(help="With --space: measure about so many parts, interpolate others.")] = 640,
    held_out: Annotated[int, typer.Option(help="With --space: check on so many networks.")] = 30,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again what the cache knows.")] = False,
    num_classes: Classes = 1000,
    in_chans: Channels = 3,
    as_json: AsJson = False,
) -> None:
    """Measure the latency, throughput and peak memory of networks, or build a predictor for a space."""
    from vitruvius.costs import latency
    from vitruvius.pipeline.timing_bar import timing_bar

    if bool(archs) == bool(space):
        refuse("latency is measured of architectures, or a predictor built for a space", "both" if space else "neither",
               "`vitruvius latency deit-tiny`, or `--space vitas-nano --save predictor.json`")  # fmt: skip
    if (space is None) != (save is None):
        refuse("--space and --save go together", space or str(save), "--space vitas-nano --save predictor.json")
    if predictor is not None and space is not None:
        refuse("--predictor reads what --space builds", str(predictor), "one of them")
    chosen = None if space is None else read_space(space)
    setting = latency.Setting(
        img_size=read_size(img_size) if img_size else chosen.img_size if chosen else 224,
        batch=batch, num_classes=num_classes, in_chans=in_chans, device=device, dtype=dtype,  # type: ignore[arg-type]
        threads=threads, compiled=compiled, runtime=runtime, clock=clock,  # type: ignore[arg-type]
    )  # fmt: skip
    cache = None if fresh else latency.default_cache()
    if chosen is not None and save is not None:
        with timing_bar(as_json) as progress:
            made = latency.build_predictor(
                chosen, setting, repeats=repeats, held_out=held_out, most_parts=parts, cache=cache,
                progress=progress, say=lambda report: None,
            )  # fmt: skip
        made.save(save)
        if as_json:
            accuracy = [{name: getattr(each, name) for name in each.__slots__} for each in made.accuracy]
            print(json.dumps({"file": str(save), "spread": made.spread, "accuracy": accuracy}, indent=1))
        else:
            print(f"{made.report()}\nin {save}")
        return
    records = [zoo.read(text) for text in archs or ()]
    with timing_bar(as_json) as progress:
        if predictor is not None:
            loaded = latency.Predictor.load(predictor)
            setting = loaded.setting
            verified = loaded.verify(records, repeats=repeats, cache=cache, progress=progress)
            found, predicted = [each.measured for each in verified], [each.predicted for each in verified]
        else:
            found = latency.measure(records, setting, repeats=repeats, cache=cache, progress=progress)
            predicted = None
    names = [text if len(text) < 40 and not text.lstrip().startswith("{") else "" for text in archs or ()]
    rows = [_row(name, each, as_json) for name, each in zip(names, found, strict=True)]
    for row, each, words in zip(rows, found, predicted or (), strict=bool(predicted)):
        error = words["latency"] / each.latency - 1
        row |= {"predicted": words["latency"] if as_json else written("latency", words["latency"])}
        row |= {"error": error if as_json else f"{error:+.1%}"}
    if as_json:
        machine = latency.machine_of(setting)
        print(json.dumps({"machine": machine, "setting": setting.to_dict(), "networks": rows}, indent=1))
        return
    Console().print(escape(f"{latency.machine_of(setting)}: {setting}"), highlight=False, soft_wrap=True)
    show(rows, False, right=("latency", "middle half", "images/s", "memory", "repeats", "predicted", "error"))
    if max(each.timing.spread for each in found) > _BUSY and setting.clock == "wall" and not setting.on_gpu:
        print("The repeats lie far apart: this machine is busy. On one thread, --clock cpu is steadier.")


def _row(name: str, found: Any, as_json: bool) -> dict[str, Any]:
    timing, memory = found.timing, found.memory
    if as_json:
        row: dict[str, Any] = {"name": name, "id": found.name, "latency": timing.seconds, "low": timing.low}
        row |= {"high": timing.high, "least": timing.least, "repeats": timing.repeats, "spread": timing.spread}
        return {**row, "throughput": found.throughput, "memory": memory, "cached": found.cached}
    return {
        "network": name or found.name,
        "latency": written("latency", timing.seconds),
        "middle half": f"{written('latency', timing.low)} .. {written('latency', timing.high)}",
        "images/s": written("throughput", found.throughput),
        "memory": None if memory is None else written("memory", memory),
        "repeats": timing.repeats,
        "from": "cache" if found.cached else "now",
    }
