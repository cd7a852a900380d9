"""Commands on training-free scores."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from vitruvius import costs
from vitruvius.arch import refuse
from vitruvius.cli._common import AsJson, Side, app, escape, read_size, read_space, show

if TYPE_CHECKING:
    from vitruvius.correlation import Band, Correlation
    from vitruvius.pipeline.score import Score

Proxies = Annotated[
    list[str] | None,
    typer.Option(
        "--proxy", "-p", help="A proxy's name; repeatable (the first one ranks). `vitruvius proxies` lists them."
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Of samples, weights, random images and resamples.")]
ClassCount = Annotated[int | None, typer.Option("--num-classes", help="The data's, else 1000.")]
ChannelCount = Annotated[int | None, typer.Option("--in-chans", help="The data's, else 3.")]
Images = Annotated[int, typer.Option("--batch-size", min=1, help="Images that a proxy of images sees.")]
Data = Annotated[str | None, typer.Option(help="Real images, of this source's train split (else random normal ones).")]
Where = Annotated[str, typer.Option("--executor", help="local, or ray.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Ray's actors; one a CPU or GPU unless said otherwise.")]
Address = Annotated[str | None, typer.Option(help="A Ray cluster that is there already.")]
Device = Annotated[str, typer.Option(help="cpu, or cuda.")]


def _stopped(out: Path | None) -> SystemExit:
    where = "nothing was kept: with --out it would go on" if out is None else f"the same command goes on with {out}"
    Console(stderr=True).print(f"\nstopped; {where}", highlight=False)
    return SystemExit(130)


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.4g}" if math.isfinite(value) else str(value)


@app.command("proxies", epilog="Example: vitruvius proxies")
def proxies_command(as_json: AsJson = False) -> None:
    """List the training-free scores: what each needs and costs."""
    from vitruvius.proxies import PROXIES

    rows = []
    for name, proxy in PROXIES.items():
        needs = proxy.needs
        row: dict[str, Any] = {"proxy": name, "passes": proxy.passes, "images": needs.images, "labels": needs.labels}
        row |= {"gradients": needs.gradients, "weights": needs.init, "of the set": proxy.of_the_set}
        rows.append({**row, "source": proxy.source})
    if not as_json:
        for row in rows:
            row |= {key: "yes" if row[key] else "" for key in ("labels", "of the set")}
            row |= {"gradients": row["gradients"] or "", "passes": f"{row['passes']:g}"}
            row |= {key: "" if row[key] == "none" else row[key] for key in ("images", "weights")}
    show(rows, as_json, right=("passes", "gradients"))
    if not as_json:
        print("passes: forward passes of its images, of which those that several proxies share are run once.")


@app.command("score", epilog="Example: vitruvius score autoformer-tiny --proxy dss -n 8000 --params 5M..6M --top 5")
def score_command(
    space: Annotated[str, typer.Argument(help="A space's name, or a YAML file.")],
    proxy: Proxies = None,
    n: Annotated[int, typer.Option("-n", min=1, help="How many architectures are sampled.")] = 8000,
    params: Annotated[str | None, typer.Option(help="Window of parameters: 5M..6M, <=6M.")] = None,
    macs: Annotated[str | None, typer.Option(help="Window of MACs: 1.2G..1.3G, <=1.3G, 1.3G+-1%.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many of the best are shown.")] = 10,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="A run folder; the same command goes on with what is there.")] = None,
    correlations: Annotated[
        bool, typer.Option("--correlations", help="Print how the proxies rank each other's samples (Kendall's tau).")
    ] = False,
    executor: Where = "local",
    workers: Workers = None,
    address: Address = None,
    device: Device = "cpu",
    img_size: Side = None,
    num_classes: ClassCount = None,
    in_chans: ChannelCount = None,
    batch_size: Images = 16,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Search without training: sample architectures in a budget, score them, show the best."""
    from vitruvius.pipeline.score import ScoreConfig, score_space

    window = {metric: text for metric, text in (("macs", macs), ("params", params)) if text is not None}
    config = ScoreConfig(
        space=read_space(space),
        proxies=tuple(proxy or ("dss",)),
        n=n,
        budget=window or None,
        seed=seed,
        num_classes=num_classes,
        img_size=None if img_size is None else read_size(img_size),
        in_chans=in_chans,
        batch_size=batch_size,
        data=data,
    )
    places: dict[str, Any] = {"executor": executor, "workers": workers, "address": address, "device": device}
    try:
        result = score_space(config, out, top=top, **places, quiet=as_json)
    except KeyboardInterrupt:
        raise _stopped(out) from None
    if as_json:
        print(json.dumps(_score_data(result, config.n, top, correlations), indent=1))
        return
    _show_score(result, config.n, top)
    if correlations:
        _show_agreement(result)
    if out is not None:
        print(f"in {out}")


def _score_data(result: Score, n: int, top: int, correlations: bool) -> dict[str, Any]:
    best = [result.row(place) for place in result.best(top)]
    found = {"sampled": n, "different": len(result.archs), "unranked": result.unranked(), "top": best}
    return {**found, "kendall": _plain(result.agreement())} if correlations else found


def _plain(table: dict[str, dict[str, float]]) -> dict[str, dict[str, float | None]]:
    return {a: {b: None if math.isnan(tau) else tau for b, tau in row.items()} for a, row in table.items()}


def _show_score(result: Score, n: int, top: int) -> None:
    from vitruvius.proxies import BASELINES

    rows = []
    for rank, place in enumerate(result.best(top), start=1):
        arch = result.archs[place]
        row: dict[str, Any] = {"rank": rank, "id": arch.id}
        row |= {name: _number(v[place]) for name, v in result.scores.items() if name not in ("params", "macs")}
        row |= {"params": costs.short(result.costs.params[place]), "MACs": costs.short(result.costs.macs[place])}
        row |= {"dims": " ".join(str(stage.dim) for stage in arch.stages)}
        rows.append(row | {"depths": " ".join(str(len(stage.blocks)) for stage in arch.stages)})
    unranked = result.unranked()
    if rows:
        show(rows, False, right=("rank", *result.scores, "MACs"))
    else:
        print(f"no sampled network has a finite {result.ranking}")
    print(f"The best by {result.ranking} of {len(result.archs):,} different networks ({n:,} samples).", end="")
    agreement = result.agreement()[result.ranking]
    taus = {name: agreement[name] for name in BASELINES if name != result.ranking}
    told = ", ".join(f"{_number(tau)} with {name}" for name, tau in taus.items())
    print(f" Kendall's tau of {result.ranking}: {told}." if told else "")
    if unranked:
        name, why = next(iter(unranked.items()))
        print(f"{len(unranked):,} networks have no rank; the first is {name}: {why}")


def _show_agreement(result: Score) -> None:
    print("\nKendall's tau between scores:")
    table = result.agreement()
    rows = [{"": name, **{other: _number(tau) for other, tau in row.items()}} for name, row in table.items()]
    show(rows, False, right=tuple(table))


@app.command("rank", epilog="Example: vitruvius rank accuracies.csv --proxy dss --proxy snip --bands 5M..7M,15M..19M")
def rank_command(
    source: Annotated[
        str,
        typer.Argument(help="A .csv or .jsonl table of architectures with accuracies, or a search's run folder."),
    ],
    proxy: Proxies = None,
    accuracy: Annotated[str, typer.Option(help="The column, or the trials' score, that is the truth.")] = "accuracy",
    bands: Annotated[
        str, typer.Option(help="Bands of parameters: a number of equally full ones, or windows: 5M..7M,15M..19M.")
    ] = "3",
    within: Annotated[float, typer.Option(help="Pairs whose parameters differ by this share are judged apart.")] = 0.1,
    resamples: Annotated[int, typer.Option(min=1, help="Of the bootstrap.")] = 1000,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="A run folder; the same command goes on with what is there.")] = None,
    executor: Where = "local",
    workers: Workers = None,
    address: Address = None,
    device: Device = "cpu",
    img_size: Side = None,
    num_classes: ClassCount = None,
    in_chans: ChannelCount = None,
    batch_size: Images = 16,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Hold proxies against known accuracies, beside parameters, MACs and chance."""
    from vitruvius.pipeline.rank import known_of, rank_proxies

    windows = _bands(bands)
    known = known_of(source, accuracy)
    options: dict[str, Any] = {"seed": seed, "num_classes": num_classes, "in_chans": in_chans}
    options |= {"batch_size": batch_size, "data": data, "device": device}
    options |= {"img_size": None if img_size is None else read_size(img_size)}
    options |= {"executor": executor, "workers": workers, "address": address, "quiet": as_json}
    judged: dict[str, Any] = {"bands": windows, "within": within, "resamples": resamples, "out": out}
    try:
        found = rank_proxies(known, tuple(proxy or ("dss",)), **judged, **options)
    except KeyboardInterrupt:
        raise _stopped(out) from None
    if as_json:
        print(json.dumps(found.to_dict(), indent=1))
        return
    total = len(known.archs)
    _show_table(f"{total:,} networks", found.overall, within)
    for band, table in found.bands:
        count = next(iter(table.values())).n + next(iter(table.values())).left_out
        ends = f"{costs.short(band.low)}..{costs.short(band.high)} parameters"
        if count < total:
            _show_table(f"{ends}: {count:,} networks", table, within)
    print(f"With 95 % intervals of {resamples:,} bootstrap resamples of the networks, seed {seed}.")
    for place, why in list(found.found.reasons.items())[:5]:
        print(f"not scored: {known.archs[place].id}: {why}")


def _bands(text: str) -> int | list[Band]:
    from vitruvius.correlation import Band

    if text.strip().isdigit() and int(text) > 0:
        return int(text)
    found = []
    for part in text.split(","):
        try:
            ends = costs.Budget.of({"params": part.strip()}).ends
        except ValueError:
            refuse("bands are a number, or windows of parameters", part, "3, say, or 5M..7M,15M..19M")
        found.append(Band(*ends[0][1:]))
    return found


def _show_table(title: str, table: dict[str, Correlation], within: float) -> None:
    Console().print(f"[bold]{escape(title)}[/]", highlight=False)
    rows = []
    pairs = 0
    for name, found in table.items():
        pairs = max(pairs, found.near_pairs)
        row: dict[str, Any] = {"proxy": name, "Kendall": str(found.kendall), "Spearman": str(found.spearman)}
        row |= {"Pearson": str(found.pearson), f"Kendall, sizes within {within:.0%}": str(found.near)}
        rows.append({**row, "left out": found.left_out or ""})
    show(rows, False, right=tuple(rows[0])[1:])
    print(f"{pairs:,} pairs are within {within:.0%} of each other's parameters.\n")
