"""Commands on recipes, none of which need torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, get_args

import typer
from rich.console import Console

from vitruvius import recipes
from vitruvius.arch import require_choice
from vitruvius.cli._common import AsJson, app, escape, show


@app.command("recipes", epilog="Example: vitruvius recipes vitas-v1-superformer-1.3g")
def recipes_command(
    name: Annotated[str | None, typer.Argument(help="One recipe, to see it whole, with its notes.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only those of a kind: superformer, retrain, finetune, ...")] = None,
    as_json: AsJson = False,
) -> None:
    """List the published settings of training and search, or show one recipe whole."""
    if name is not None:
        recipe = recipes.load(name)
        if as_json:
            print(json.dumps(asdict(recipe), indent=1))
        else:
            _show(recipe)
        return
    if kind is not None:
        require_choice("kind of recipe", kind, get_args(recipes.Kind))
    listed = [recipe for recipe in map(recipes.load, recipes.names()) if kind in (None, recipe.kind)]
    show([asdict(recipe) if as_json else _row(recipe) for recipe in listed], as_json, right=_NUMBERS)


_NUMBERS = ("epochs", "batch", "rate", "decay", "warm-up", "drop path")


def _row(recipe: recipes.Recipe) -> dict[str, Any]:
    settings = recipe.settings
    rate = settings.get("lr")
    if rate and (reference := settings.get("lr_reference_batch")):
        rate = rate * settings["batch_size"] / reference
    return {
        "recipe": recipe.name,
        "kind": recipe.kind,
        "epochs": settings.get("epochs"),
        "batch": settings.get("batch_size"),
        "rate": rate and f"{rate:.3g}",
        "decay": settings.get("weight_decay"),
        "warm-up": settings.get("warmup_epochs"),
        "drop path": settings.get("drop_path_rate"),
        "augmentation beyond crop and flip": _augmentation(settings),
        "source": recipe.paper,
    }


def _augmentation(settings: Mapping[str, Any]) -> str:
    policy = settings.get("auto_augment")
    parts = ["RandAugment" if policy and policy.startswith("rand") else policy]
    parts += [f"{key} {settings[key]:g}" for key in ("mixup", "cutmix", "erasing") if settings.get(key)]
    if (copies := settings.get("repeated_augmentation", 1)) > 1:
        parts.append(f"each image {copies} times")
    if settings.get("token_labeling", "off") != "off":
        parts.append("token labels")
    return ", ".join(part for part in parts if part)


def _show(recipe: recipes.Recipe) -> None:
    console = Console()
    console.print(f"[bold]{escape(recipe.name)}[/]  {recipe.kind}, {escape(recipe.paper)} ({recipe.date})")
    console.print(escape(f"where: {recipe.where}\ncost: {recipe.cost}\n\n{recipe.notes}\n"))
    order = {"paper": 0, "filled": 1}
    rows = [
        {"setting": key, "value": "none" if value is None else str(value), "from": recipe.sources[key]}
        for key, value in sorted(recipe.settings.items(), key=lambda item: order.get(recipe.sources[item[0]], 2))
    ]
    show(rows, False)
    print(
        '"paper": printed there; "filled": left open there, the notes say why; else the record that it is taken from.'
    )
