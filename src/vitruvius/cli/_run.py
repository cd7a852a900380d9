"""The whole journey, and its report."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from vitruvius.arch import refuse
from vitruvius.cli._common import AsJson, app, escape, show, show_facts
from vitruvius.cli._train import Set, nested, settings_of

EVOLVE_GROUPS: dict[str, Any] = {"superformer": {}, "steps": {}, "search": {}}
"""Settings of an evolution that are mappings."""
_GROUPS: dict[str, Any] = {"superformer": {}, "evolve": EVOLVE_GROUPS, "search": {}, "retrain": {}}


@app.command("run", epilog='Example: vitruvius run --data ./images --budget "latency<=5ms" --out runs/first')
def run_command(
    config: Annotated[str | None, typer.Argument(help="A YAML file of settings.", show_default=False)] = None,
    data: Annotated[str | None, typer.Option(help="digits, a folder of images per class, idx:FOLDER, ...")] = None,
    budget: Annotated[str | None, typer.Option(help='"latency<=5ms", "macs<=1.3G, params<=6M", ...')] = None,
    method: Annotated[
        str | None, typer.Option(help="vitruvius, vitas-v1, vitas-v2, s3, vit-resnas, tf-tas or autoformer.")
    ] = None,
    space: Annotated[str | None, typer.Option(help="A space's name, or a YAML file; else the method's own.")] = None,
    img_size: Annotated[int | None, typer.Option(help="Pixels; else the images' own if small, or 224.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of everything random.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder; the same command goes on with it.")] = None,
    phase: Annotated[
        str | None, typer.Option(help="Only this one: superformer, search, retrain, analysis or export.")
    ] = None,
    sets: Set = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and how long it may take.")] = False,
    as_json: AsJson = False,
) -> None:
    """Images and a budget in; the best network found, trained, exported, with a report.

    Settings of the phases are set as superformer.KEY, search.KEY, retrain.KEY and evolve.KEY (-s search.images=500).
    """
    from vitruvius.arch import require_choice
    from vitruvius.pipeline.journey import PHASES, Journey, read_journey_config
    from vitruvius.training.run import check_folder

    given = {"data": data, "budget": budget, "method": method, "space": space, "img_size": img_size, "seed": seed}
    settings = nested(settings_of(config, sets, **given), _GROUPS)
    if "data" not in settings:
        refuse(
            "a run needs images", "none", "--data FOLDER (one folder a class), --data digits, idx:FOLDER, torch/NAME"
        )
    read = read_journey_config(settings)
    if phase is not None:
        require_choice("phase", phase, PHASES)
    if out is None and not dry_run:
        refuse("a run needs a folder", "none", "--out runs/first, say (or --dry-run)")
    if out is not None:
        check_folder(out)
    with _stoppable():
        journey = Journey(read, out or Path("runs/none"), quiet=as_json)
        if dry_run or out is None or not (out / "run.json").exists():
            _show_plan(journey, as_json and dry_run, quiet=as_json and not dry_run)
        if dry_run or out is None:
            return
        result = journey.run(phase)  # type: ignore[arg-type]
        page = _report(out)
    if as_json:
        print(json.dumps(result, indent=1))
        return
    if result:
        _show_result(result)
    if page is not None:
        Console().print(f"the report is {page}", highlight=False, soft_wrap=True)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Ctrl-C, or a training that cannot go on, ends with what to do next."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        yield
    except KeyboardInterrupt:
        again = shlex.join(["vitruvius", *sys.argv[1:]])
        console.print(f"\nstopped; the same command goes on from here:\n  {escape(again)}")
        raise SystemExit(130) from None
    except FloatingPointError as error:
        console.print(f"[bold red]error:[/] {escape(error)}")
        raise SystemExit(1) from None


def _show_plan(journey: Any, as_json: bool, quiet: bool) -> None:
    from vitruvius.pipeline.plan import plan_lines

    if not quiet:
        show_facts(plan_lines(journey), as_json)


def _show_result(result: dict[str, Any]) -> None:
    from vitruvius.costs import short, written
    from vitruvius.pipeline.plan import accuracy_noise, duration

    rows = []
    for row in result["rows"]:
        shown = {"network": row["name"], "test": f"{row['test']:.2f} %", "MACs": short(row["macs"])}
        shown |= {"params": short(row["params"])}
        if row["latency"] is not None:
            shown["latency"] = written("latency", row["latency"])
        rows.append(shown)
    show(rows, False, f"within {result['budget']}", right=("test", "MACs", "params", "latency"))
    print("hand-made: DeiT's shape, with the MACs of the found network; random: the best of the search's random ones.")
    if result["random_is_found"]:
        print("The best of the search's random networks is the found one.")
    if result["missed"]:
        print(f"The found network may be outside the budget ({result['budget']}): {result['missed']}.")
    total = sum(result["seconds"].values())
    print(f"{accuracy_noise(result)} All in all {duration(total)}.")


def _report(out: Path) -> Path | None:
    """The page, where there is a result to show and something to draw it with."""
    from vitruvius.report import write_report

    try:
        return write_report(out)
    except ValueError as error:
        Console(stderr=True).print(f"no report: {escape(error)}", highlight=False, soft_wrap=True)
        return None


@app.command("report", epilog="Example: vitruvius report runs/first")
def report_command(
    run: Annotated[Path, typer.Argument(help="A run folder of any kind, or a folder of several.")],
    out: Annotated[Path | None, typer.Option(help="Where the page goes; into the run folder without it.")] = None,
    pictures: Annotated[bool, typer.Option("--pictures/--no-pictures", help="Figures as PNGs beside it.")] = True,
) -> None:
    """Make one page of what a run did: accuracy against cost, drawings, health, attention, versions."""
    from vitruvius.pipeline.attention import add_attention
    from vitruvius.report import write_report

    try:
        add_attention(run)
    except (ValueError, OSError) as error:  # the images have gone, say
        Console(stderr=True).print(f"no attention maps: {escape(error)}", highlight=False, soft_wrap=True)
    print(write_report(run, out, pictures))
