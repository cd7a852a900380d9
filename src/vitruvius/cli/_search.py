"""Commands that search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from vitruvius.arch import refuse
from vitruvius.cli._common import AsJson, app, escape, show, show_facts
from vitruvius.cli._train import DryRun, Set, settings_of


@app.command(
    "search", epilog='Example: vitruvius search --superformer runs/super --budget "macs<=1.3G" --out runs/search'
)
def search_command(
    config: Annotated[str | None, typer.Argument(help="A YAML file of settings.", show_default=False)] = None,
    space: Annotated[str | None, typer.Option(help="A space's name, or a YAML file; else the superformer's.")] = None,
    superformer: Annotated[
        str | None, typer.Option(help="A superformer's run: candidates inherit its weights.")
    ] = None,
    budget: Annotated[str | None, typer.Option(help='"macs: 1.2G..1.3G, params <= 6M, latency <= 8ms".')] = None,
    objectives: Annotated[str | None, typer.Option(help="accuracy, macs, latency, a proxy's name, mixture.")] = None,
    searcher: Annotated[str | None, typer.Option(help="random, evolution, nsga2 or exhaustive.")] = None,
    recipe: Annotated[str | None, typer.Option(help="A recipe's settings (`vitruvius recipes --kind search`).")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Equal seeds give equal searches.")] = None,
    executor: Annotated[str | None, typer.Option(help="local, or ray: many processes or machines.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Of Ray: how many; one a device without it.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder; the same command goes on with what is there.")
    ] = None,
    sets: Set = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Search a space for the best networks within a budget."""
    from vitruvius.pipeline.search import make_search_plan, read_search_config, search

    given: dict[str, Any] = {
        "space": space,
        "superformer": superformer,
        "budget": budget,
        "objectives": objectives,
        "searcher": searcher,
        "recipe": recipe,
        "seed": seed,
        "executor": executor,
        "workers": workers,
    }
    read = read_search_config(settings_of(config, sets, **given))
    if dry_run:
        show_facts(make_search_plan(read).summary(), as_json)
        return
    if out is None:
        refuse("a run needs a folder", "none", "--out runs/search, say (or --dry-run)")
    try:
        run = search(read, out, quiet=as_json)
    except KeyboardInterrupt:
        Console(stderr=True).print(f"\nstopped; the same command goes on from the last candidate in {out}")
        raise SystemExit(130) from None
    if as_json:
        print(json.dumps({**run.result, "measured": run.measured}, indent=1))
        return
    for line in run.lines():
        Console().print(escape(line), soft_wrap=True, highlight=False)
    print(f"in {out}; `vitruvius trials {out} --pareto` lists the front, optuna-dashboard {out}/study.log shows it all")


@app.command("trials", epilog="Example: vitruvius trials runs/search --pareto")
def trials_command(
    run: Annotated[Path, typer.Argument(help="A search's run folder, finished or not.")],
    pareto: Annotated[
        bool, typer.Option("--pareto", help="Only those that no other one beats in every objective.")
    ] = False,
    top: Annotated[int | None, typer.Option(min=1, help="Only so many, the best of the first objective.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only those that could not be evaluated, and why.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what a search has evaluated."""
    from vitruvius.pipeline.search import open_search, shown

    opened = open_search(run)
    trials = opened.front() if pareto else opened.trials
    trials = [trial for trial in trials if trial.complete != failed]
    first = opened.objectives[0]
    if top is not None and not failed:
        trials = sorted(trials, key=lambda trial: trial.value(first.name), reverse=first.maximise)[:top]
    if as_json:
        print(json.dumps([trial.to_dict() for trial in trials], indent=1))
        return
    rows = []
    for trial in trials:
        row: dict[str, Any] = {"trial": trial.number, "id": trial.arch.id, "generation": trial.generation}
        row |= {name: shown(name, value) for name, value in {**trial.scores, **trial.costs}.items()}
        row |= {"made by": trial.made, "seconds": f"{trial.seconds:.2f}"}
        rows.append({**row, "reason": trial.reason} if failed else row)
    numbers = [name for name in (rows[0] if rows else ()) if name not in ("id", "made by", "reason")]
    if rows:
        show(rows, False, right=numbers)
    else:
        print("no trials" if not failed else "no failed trials")
