"""Commands that hand networks out, and take published ones in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.status import Status

from vitruvius import zoo
from vitruvius.arch import refuse
from vitruvius.cli._common import AsJson, Side, app, escape, read_size, read_space, show

Onnx = Annotated[bool, typer.Option("--onnx/--no-onnx", help="Write model.onnx too (needs the extra 'onnx').")]
License = Annotated[str | None, typer.Option(help="The weights' licence, for the model card: apache-2.0, say.")]


@app.command("export", epilog="Example: vitruvius export runs/deit --out deit-flowers")
def export_command(
    run: Annotated[
        str,
        typer.Argument(help="A finished run's folder; or, with --weights, an architecture."),
    ],
    out: Annotated[Path | None, typer.Option(help="The folder to write; RUN/export unless said otherwise.")] = None,
    onnx: Onnx = True,
    weights: Annotated[Path | None, typer.Option(help="A file of weights; RUN is then a zoo name or JSON.")] = None,
    img_size: Side = None,
    license: License = None,
    as_json: AsJson = False,
) -> None:
    """Write a trained network as a folder for timm, with a model card and ONNX, each loaded back and compared."""
    if weights is None:
        if img_size is not None:
            refuse("a run knows its image size", img_size, "--img-size with --weights; `vitruvius finetune` changes it")
        if not os.path.isdir(run):
            refuse("what is exported is a run's folder", run, "a finished run, or an architecture with --weights FILE")
    elif out is None:
        refuse("an export of weights needs a folder", "none", "--out FOLDER")
    from vitruvius import export

    with _working("writing, loading back, comparing"):
        if weights is None:
            bundle = export.export_run(run, out, onnx=onnx, license=license)
        else:
            assert out is not None
            size = 224 if img_size is None else read_size(img_size)
            bundle = export.export_weights(zoo.read(run), weights, out, img_size=size, onnx=onnx, license=license)
    _show_bundle(bundle.summary(), as_json)


@app.command("import", epilog="Example: vitruvius import supernet-tiny.pth --as autoformer --out superformer")
def import_command(
    file: Annotated[Path, typer.Argument(help="A published checkpoint: .safetensors, or .pth of tensors only.")],
    publisher: Annotated[str, typer.Option("--as", help="Whose names it has: autoformer, s3.")],
    out: Annotated[
        Path | None, typer.Option(help="The folder to write; without one the file is only looked at.")
    ] = None,
    arch: Annotated[
        str | None, typer.Option(help="Cut this network (zoo name, JSON) out of an AutoFormer file.")
    ] = None,
    space: Annotated[str | None, typer.Option(help="The space (name, YAML) of a superformer not released.")] = None,
    onnx: Onnx = False,
    img_size: Side = None,
    as_json: AsJson = False,
) -> None:
    """Bring a published checkpoint into our models, and say whether it is a superformer or a single network."""
    from vitruvius import export

    options = {
        "arch": None if arch is None else zoo.read(arch),
        "space": None if space is None else read_space(space),
        "img_size": None if img_size is None else read_size(img_size),
    }
    with _working("reading"):
        found = export.import_checkpoint(file, publisher, **options)  # type: ignore[arg-type]
    with _working("writing, loading back, comparing"):
        bundle = None if out is None else found.save(out, onnx=onnx)
    if as_json:
        written = {"folder": None if out is None else str(out)} if bundle is None else bundle.summary()
        print(json.dumps({**found.summary(), **written}, indent=1))
        return
    said = found.summary()
    what = (
        f"superformer of the space {said['name']}" if found.kind == "superformer" else f"single network, {said['name']}"
    )
    Console().print(
        f"[bold]{escape(file.name)}[/] is a {escape(what)}: {said['parameters']:,} parameters, "
        f"{said['num_classes']} classes, {said['img_size'][0]}x{said['img_size'][1]} pixels",
        soft_wrap=True,
        highlight=False,
    )
    if found.kind == "superformer":
        print("To cut a network out of it: --arch NAME. Networks retrained by the released code look like this too.")
        if out is not None:
            print(f"in {out}: vitruvius.Superformer.load({str(out)!r})")
    if bundle is not None:
        _show_bundle(bundle.summary(), False)


def _said(difference: float) -> str:
    return f"{difference:.1e}" if difference else "nothing"


def _working(what: str) -> Status:
    """For people who wait; nothing where nobody looks."""
    return Console(stderr=True).status(f"{what} ...")


def _show_bundle(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary, indent=1))
        return
    checks = {file.partition(",")[0]: [] for file in summary["checks"]}
    for what, difference in summary["checks"].items():
        file, _, batch = what.partition(", ")
        checks[file].append(f"{batch + ': ' if batch else ''}{_said(difference)}")
    rows = [
        {"file": name, "bytes": f"{size:,}", "logits loaded back differ by": ", ".join(checks.get(name, []))}
        for name, size in summary["bytes"].items()
    ]
    show(rows, False, right=("bytes",))
    opset = f", ONNX opset {summary['opset']}" if summary["opset"] else ""
    print(f"in {summary['folder']} ({summary['arch']}{opset})")
