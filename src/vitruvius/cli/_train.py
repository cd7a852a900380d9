"""Commands that train."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console

from vitruvius.arch import refuse
from vitruvius.cli._common import AsJson, app, escape, show_facts

Config = Annotated[str | None, typer.Argument(help="A YAML file of settings.", show_default=False)]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting; wins over the file and the recipe. Repeatable."),
]
Recipe = Annotated[str | None, typer.Option(help="Take this recipe's settings (`vitruvius recipes` lists them).")]
Data = Annotated[str | None, typer.Option(help="digits, a folder, idx:FOLDER, or torch/NAME, hfds/NAME, wds/NAME.")]
Out = Annotated[Path | None, typer.Option(help="The run folder; the same command goes on with what is there.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan, its cost and the split, and stop there.")]


def settings_of(config: str | None, sets: list[str] | None, **options: Any) -> dict[str, Any]:
    """The settings of a file, of options and of KEY=VALUE words, the last winning."""
    from vitruvius.training.config import read_yaml

    settings = {} if config is None else read_yaml(Path(config))
    settings |= {key: value for key, value in options.items() if value is not None}
    for word in sets or ():
        key, equals, value = word.partition("=")
        if not equals:
            refuse("a setting is KEY=VALUE", word, "lr=1e-3, say")
        settings[key.strip().replace("-", "_")] = _value(value)
    return settings


def _value(text: str) -> Any:
    """YAML's, which reads 1e-3 as a word."""
    try:
        return float(text) if "e" in text.lower() else yaml.safe_load(text)
    except ValueError:
        return yaml.safe_load(text)


def nested(settings: dict[str, Any], groups: dict[str, Any]) -> dict[str, Any]:
    """`search.images: 500` is `search: {images: 500}`, at any depth.

    groups: the keys that are mappings, each with such keys of its own; another key may have dots of its own.
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        head, dot, rest = key.partition(".")
        if head in groups:
            key, value = head, {rest: value} if dot else value
            if isinstance(value, dict) and isinstance(found.get(head), dict):
                value = {**found[head], **value}
        found[key] = value
    return {
        key: nested(value, groups[key]) if key in groups and isinstance(value, dict) else value
        for key, value in found.items()
    }


def run_or_plan(config: Any, out: Path | None, dry_run: bool, as_json: bool) -> None:
    """Trains, or with `dry_run` says what it would come to."""
    if dry_run:
        _show_plan(config, as_json)
        return
    if out is None:
        refuse("a run needs a folder", "none", "--out runs/first, say (or --dry-run)")
    from vitruvius.training import train
    from vitruvius.training.run import RESULT

    finished = (out / RESULT).exists()
    try:
        run = train(config, out, quiet=as_json)
    except KeyboardInterrupt:
        begun = any(out.glob("checkpoints/step-*[0-9]"))
        then = f"goes on from the last checkpoint in {out}" if begun else "begins anew"
        Console(stderr=True, soft_wrap=True).print(f"\nstopped; the same command {then}", highlight=False)
        raise SystemExit(130) from None
    except FloatingPointError as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(error)}", highlight=False)
        raise SystemExit(1) from None
    if int(os.environ.get("RANK", "0")):  # what follows is said once
        return
    if as_json:
        print(json.dumps(run.result, indent=1))
        return
    for part in ("validation", "test"):
        if part in run.result:
            Console().print(f"[bold]{part}[/]  {escape(run.result[part]['summary'])}", soft_wrap=True, highlight=False)
    Console().print(f"in {out}" + (", finished before: another --out begins anew" if finished else ""), soft_wrap=True)


def _show_plan(config: Any, as_json: bool) -> None:
    from vitruvius.training.plan import make_plan

    plan = make_plan(config, int(os.environ.get("WORLD_SIZE", "1")))
    if as_json:
        show_facts(plan.summary() | {"settings": config.model_dump(mode="json")}, as_json)
        return
    show_facts(plan.summary(), as_json)
    said = {key: value for key, value in config.model_dump().items() if value not in (None, "", {})}
    Console().print(f"\n[bold]settings[/]  {escape(', '.join(f'{key}={_text(said[key])}' for key in said))}")


def _text(value: object) -> str:
    text = json.dumps(value) if isinstance(value, dict | tuple) else str(value)
    return text if len(text) < 60 else f"{text[:57]}..."


@app.command("train", epilog="Example: vitruvius train --space vitas-nano --data digits --out runs/superformer")
def train_command(
    config: Config = None,
    space: Annotated[str | None, typer.Option(help="A space's name, or a YAML file.")] = None,
    recipe: Recipe = None,
    data: Data = None,
    out: Out = None,
    sets: Set = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Train a superformer."""
    from vitruvius.training.config import SuperformerConfig, read_config

    settings = settings_of(config, sets, space=space, recipe=recipe, data=data)
    run_or_plan(read_config(SuperformerConfig, settings), out, dry_run, as_json)


@app.command("retrain", epilog="Example: vitruvius retrain deit-tiny --data ./images --out runs/deit")
def retrain_command(
    arch: Annotated[str | None, typer.Argument(help="A zoo name, a JSON file, JSON text, or a run's folder.")] = None,
    config: Annotated[str | None, typer.Option(help="A YAML file of settings.")] = None,
    superformer: Annotated[str | None, typer.Option(help="Start from the slices of this superformer's run.")] = None,
    recipe: Recipe = None,
    data: Data = None,
    out: Out = None,
    sets: Set = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Train one architecture, from scratch or from a superformer's slices."""
    from vitruvius.training.config import RetrainConfig, read_config

    settings = settings_of(config, sets, arch=arch, superformer=superformer, recipe=recipe, data=data)
    run_or_plan(read_config(RetrainConfig, settings), out, dry_run, as_json)


@app.command("finetune", epilog="Example: vitruvius finetune runs/deit --out runs/deit-384 --set img_size=384")
def finetune_command(
    start: Annotated[str | None, typer.Argument(help="The run folder of a trained network.")] = None,
    config: Annotated[str | None, typer.Option(help="A YAML file of settings.")] = None,
    recipe: Recipe = None,
    data: Data = None,
    out: Out = None,
    sets: Set = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Go on from a trained network: at a larger resolution, or on other images with a new classifier."""
    from vitruvius.training.config import FinetuneConfig, read_config

    settings = settings_of(config, sets, start=start, recipe=recipe, data=data)
    run_or_plan(read_config(FinetuneConfig, settings), out, dry_run, as_json)
