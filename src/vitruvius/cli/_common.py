"""What every command uses: the application, options, reading of names, printing of tables."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
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
    """Runs the command line; a bad input, or a file that cannot be used, is one line on stderr and exit code 2."""
    try:
        app()
    except ValueError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"[bold red]error:[/] {escape(error)}")
        sys.exit(2)
    except BrokenPipeError:  # the reader, `head` say, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        said = f"{error.strerror or error}{'' if error.filename is None else f': {error.filename}'}"
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"[bold red]error:[/] {escape(said)}")
        sys.exit(2)


def escape(text: object) -> str:
    return str(text).replace("[", "\\[")


def show(rows: Sequence[dict[str, Any]], as_json: bool, title: str = "", right: Sequence[str] = ()) -> None:
    """Rows as JSON, or as a table whose columns in `right` are numbers."""
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    # A pipe has no width of its own: nothing is cut there.
    console = Console(width=None if sys.stdout.isatty() else 200)
    cells = {name: ["" if row[name] is None else str(row[name]) for row in rows] for name in (rows[0] if rows else ())}
    widths, left_out, narrow = _widths(cells, {*list(cells)[:1], *right}, console.width)
    style: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False, "collapse_padding": True} if narrow else {}
    table = Table(title=title or None, title_justify="left", header_style="bold", **style)
    for name, width in widths.items():
        table.add_column(name, justify="right" if name in right else "left", overflow="fold", width=width)
    for texts in zip(*(cells[name] for name in widths), strict=True):
        table.add_row(*map(escape, texts))
    room, console.width = console.width, max(console.width, sum(widths.values()) + 3 * len(widths) + 1)
    console.print(table)  # what must stay whole and still does not fit is left to the terminal to wrap
    if left_out:
        print(f"Left out in {room} columns: {', '.join(left_out)}. A wider terminal or --json shows all.")


def show_facts(facts: Mapping[str, Any], as_json: bool) -> None:
    """What a dry run says, a line each."""
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        table.add_row(f"[bold]{name}[/]", escape(f"{value:,}" if isinstance(value, int) else value))
    Console().print(table)


def _widths(cells: dict[str, list[str]], whole: set[str], room: int) -> tuple[dict[str, int], list[str], bool]:
    """The width of every column, those that are left out, and whether the frame must be narrow too.

    The entries of `whole` columns (names and numbers) are never cut. Other text folds between words; where that does
    not make room enough, its columns are left out, the last first.
    """
    natural = {name: max(map(len, [name, *texts])) for name, texts in cells.items()}
    words = {name: " ".join([name, *(() if name in whole else texts)]).split() for name, texts in cells.items()}
    least = {name: max(map(len, words[name] + (cells[name] if name in whole else [])), default=1) for name in cells}
    narrow = sum(least.values()) + 3 * len(least) + 1 > room
    frame = 2 if narrow else 3
    left_out: list[str] = []
    while narrow and sum(least.values()) + frame * len(least) > room and (text := [n for n in least if n not in whole]):
        left_out.insert(0, text[-1])
        del least[text[-1]]
    spare = room - sum(least.values()) - frame * len(least) - (not narrow)
    for name in sorted(least, key=lambda name: (name not in whole, natural[name])):
        more = min(natural[name] - least[name], max(spare, 0))
        least[name] += more
        spare -= more
    return least, left_out, narrow


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
    is_file = "." in text or os.sep in text  # no name has one
    return spaces.Space.from_yaml(Path(text)) if is_file else spaces.load(text)
