"""What every command uses: the application, options, reading of names, printing of tables."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from vitruvius import spaces
from vitruvius.arch import ImageSize

app = typer.Typer(
    name="vitruvius",
    help="Finds vision transformers: five published search methods in one place.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Side = Annotated[str | None, typer.Option("--img-size", help="Image size in pixels: 224, or 192x256.")]
Classes = Annotated[int, typer.Option("--num-classes", help="Classes of the classifier; 0 for none.")]
Channels = Annotated[int, typer.Option("--in-chans", help="Channels of the images.")]


def main() -> None:
    """Runs the command line; a bad input is one line on stderr and exit code 2."""
    try:
        app()
    except ValueError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"[bold red]error:[/] {escape(error)}")
        sys.exit(2)
    except BrokenPipeError:  # the reader, `head` say, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def escape(text: object) -> str:
    return str(text).replace("[", "\\[")


def show(rows: Sequence[dict[str, Any]], as_json: bool, title: str = "", right: Sequence[str] = ()) -> None:
    """Rows as JSON, or as a table whose columns in `right` are numbers."""
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    table = Table(title=title or None, title_justify="left", header_style="bold")
    for name in rows[0] if rows else ():
        table.add_column(name, justify="right" if name in right else "left", overflow="fold", no_wrap=name in right)
    for row in rows:
        table.add_row(*(escape("" if value is None else value) for value in row.values()))
    # A pipe has no width of its own: nothing is cut there.
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def read_size(text: str) -> ImageSize:
    try:
        sides = tuple(int(side) for side in text.lower().split("x"))
    except ValueError:
        sides = ()
    if len(sides) not in (1, 2):
        raise ValueError(f"an image size cannot be read; got {text!r}; allowed: 224, or 192x256")
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def amount(count: int) -> str:
    """A whole number of any length: 4,000, or 1.3e43."""
    digits = str(count)
    return f"{count:,}" if len(digits) < 6 else f"{digits[0]}.{digits[1]}e{len(digits) - 1}"


def read_space(text: str) -> spaces.Space:
    """A space from its name or a YAML file."""
    return spaces.Space.from_yaml(text) if text.endswith((".yaml", ".yml", ".json")) else spaces.load(text)
