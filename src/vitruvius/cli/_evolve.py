"""The command that searches the search space."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console

from vitruvius.arch import refuse
from vitruvius.cli._common import AsJson, app, show, show_facts
from vitruvius.cli._run import EVOLVE_GROUPS, _report
from vitruvius.cli._train import Config, Data, DryRun, Out, Recipe, Set, nested, settings_of


@app.command("evolve-space", epilog="Example: vitruvius evolve-space --recipe digits-evolve-space --out runs/s3")
def evolve_space_command(
    config: Config = None,
    space: Annotated[str | None, typer.Option(help="The first space: a name, or a YAML file.")] = None,
    recipe: Recipe = None,
    data: Data = None,
    budget: Annotated[str | None, typer.Option(help="What networks may cost: 'macs <= 4M'.")] = None,
    iterations: Annotated[int | None, typer.Option(help="T: how often the space moves.")] = None,
    warm_start: Annotated[
        bool | None,
        typer.Option("--warm-start/--cold-start", help="Begin a superformer with the weights of the one before."),
    ] = None,
    search_every: Annotated[
        bool | None,
        typer.Option("--search-every/--search-last", help="Search in every space, to compare them, or in the last."),
    ] = None,
    out: Out = None,
    sets: Set = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Search the search space (S3): train, measure E-T errors, move the space, again; then search in the last one.

    Settings of the superformers are set as superformer.KEY (-s superformer.epochs=50), of the search as search.KEY, the
    steps of dimensions as steps.KEY.
    """
    from vitruvius.pipeline.evolve_config import read_evolve_config
    from vitruvius.pipeline.evolve_space import evolve_space, plan_summary

    given = settings_of(
        config,
        sets,
        space=space,
        recipe=recipe,
        budget=budget,
        iterations=iterations,
        warm_start=warm_start,
        search_every=search_every,
    )
    if data is not None:
        given["superformer.data"] = data
    settings = read_evolve_config(nested(given, EVOLVE_GROUPS))
    if dry_run:
        show_facts(plan_summary(settings), as_json)
        return
    if out is None:
        refuse("a run needs a folder", "none", "--out runs/s3, say (or --dry-run)")
    try:
        result = evolve_space(settings, out, quiet=as_json, after_each=_report)
    except KeyboardInterrupt:
        Console(stderr=True).print(f"\nstopped; the same command goes on with what is in {out}")
        raise SystemExit(130) from None
    page = _report(out)
    if as_json:
        print(json.dumps(result, indent=1))
        return
    show([_row(each) for each in result["spaces"]], False, right=("E-T error", "best", "params", "MACs"))
    Console().print(f"in {out}; the last space: {out / result['last'] / 'space.yaml'}", soft_wrap=True, highlight=False)
    lowest = min(result["spaces"], key=lambda row: row["e_t_error"]["error"])
    if lowest["folder"] != result["last"]:
        said = f"{lowest['space']} had a lower E-T error than the last space: {out / lowest['folder'] / 'space.yaml'}"
        Console().print(said, soft_wrap=True, highlight=False)
    if page is not None:
        Console().print(f"the report is {page}", soft_wrap=True, highlight=False)


def _row(space: dict[str, Any]) -> dict[str, Any]:
    from vitruvius.costs import short

    error, best = space["e_t_error"], space["best"] or {}
    scores, costs = best.get("scores", {}), best.get("costs", {})
    return {
        "space": space["space"],
        "E-T error": f"{error['error']:.2f} %",
        "interval": f"{error['low']:.2f} to {error['high']:.2f}",
        "best": f"{scores['accuracy']:.2f} %" if scores else None,
        "params": short(costs["params"]) if costs else None,
        "MACs": short(costs["macs"]) if costs else None,
    }
