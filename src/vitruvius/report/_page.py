"""One HTML file that needs nothing else: sections, figures as data, the page's style and script, plotly itself."""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

from vitruvius.report.drawing import MIXER_COLORS

__all__ = [
    "Part",
    "Section",
    "cards",
    "details",
    "drawings",
    "heading",
    "page",
    "pictures",
    "plot",
    "preformatted",
    "table",
    "text",
]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the page: its HTML, the figures and architectures that the HTML names, and what becomes files."""

    html: str
    figures: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    archs: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """What a figure's points may draw, by id."""
    drawn: Mapping[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    """Drawings side by side, by their names, each with a note."""
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    """PNGs by name."""


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    """Of the link that leads to it."""
    title: str
    parts: Sequence[Part]


def text(said: str, quiet: bool = False) -> Part:
    return Part(f"<p{' class=quiet' if quiet else ''}>{html.escape(said)}</p>")


def heading(said: str) -> Part:
    return Part(f"<h3>{html.escape(said)}</h3>")


def details(said: str, inside: Part) -> Part:
    """What few will want to read, behind one line."""
    return replace(inside, html=f"<details><summary>{html.escape(said)}</summary>{inside.html}</details>")


def preformatted(said: str) -> Part:
    return Part(f"<pre>{html.escape(said)}</pre>")


def table(rows: Sequence[Mapping[str, Any]], best: int | None = None) -> Part:
    """Rows of equal keys; numbers stand right. best: the row that is set in bold."""

    def cell(tag: str, value: Any, number: bool) -> str:
        return f"<{tag}{' class=number' if number else ''}>{html.escape('' if value is None else str(value))}</{tag}>"

    keys = list(rows[0])
    numbers = {key for key in keys if all(_is_number(row[key]) for row in rows)}
    head = "".join(cell("th", key, key in numbers) for key in keys)
    body = "".join(
        f"<tr{' class=best' if index == best else ''}>"
        + "".join(cell("td", row[k], k in numbers) for k in keys)
        + "</tr>"
        for index, row in enumerate(rows)
    )
    return Part(f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>")


def _is_number(value: Any) -> bool:
    return value is None or str(value).strip()[:1] in "0123456789+-−."


def cards(values: Mapping[str, str]) -> Part:
    """A few numbers that are seen first."""
    made = (f"<div class=card><b>{html.escape(v)}</b><span>{html.escape(k)}</span></div>" for k, v in values.items())
    return Part(f"<div class=cards>{''.join(made)}</div>")


def plot(
    name: str,
    figure: dict[str, Any],
    caption: str,
    archs: Mapping[str, dict[str, Any]] | None = None,
    *,
    half: bool = False,
) -> Part:
    """A figure; a click on a point draws its architecture below, where `archs` has it. Two halves stand side by side,
    where there is room."""
    draws = f' data-draws="{name}-picked"' if archs else ""
    picked = f'<div class="drawing picked" id="{name}-picked"></div>' if archs else ""
    width = " class=half" if half else ""
    made = f'<div class=plot data-figure="{name}"{draws}></div><figcaption>{html.escape(caption)}</figcaption>'
    return Part(f"<figure{width}>{made}</figure>{picked}", {name: figure}, archs or {})


def drawings(shown: Mapping[str, tuple[dict[str, Any], str]]) -> Part:
    """Architectures side by side, by their names, each with a note."""
    mixers = {block[0]: None for drawn, _ in shown.values() for stage in drawn["stages"] for block in stage["blocks"]}
    legend = "".join(
        f'<span><i style="background:{MIXER_COLORS[kind]}"></i>{"MLP" if kind == "mlp" else f"{kind} attention"}</span>'
        for kind in [*mixers, "mlp"]
    )
    places = "".join(
        f'<div class=drawing data-arch="{drawn["id"]}" data-title="{html.escape(name)}" '
        f'data-note="{html.escape(note)}"></div>'
        for name, (drawn, note) in shown.items()
    )
    made = f"<div class=legend>{legend}</div><div class=drawings>{places}</div>"
    return Part(made, {}, {drawn["id"]: drawn for drawn, _ in shown.values()}, shown)


def pictures(shown: Mapping[str, tuple[bytes, str]]) -> Part:
    """PNGs side by side, by their names, each with a caption."""
    made = "".join(
        f'<figure><img alt="{html.escape(caption)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        for png, caption in shown.values()
    )
    return Part(f"<div class=heat>{made}</div>", pictures={name: png for name, (png, _) in shown.items()})


def _finite(value: Any) -> Any:
    """With None for what is no number, of which JSON knows nothing: a figure leaves such points out."""
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def page(title: str, subtitle: str, sections: Sequence[Section], foot: str) -> str:
    """All of it as one text."""
    from plotly.offline import get_plotlyjs

    assets = resources.files("vitruvius.report") / "assets"
    parts = [part for section in sections for part in section.parts]
    given = {
        "figures": {name: _finite(figure) for part in parts for name, figure in part.figures.items()},
        "archs": {name: drawn for part in parts for name, drawn in part.archs.items()},
        "colors": MIXER_COLORS,
    }
    data = json.dumps(given, allow_nan=False, separators=(",", ":")).replace("</", "<\\/")
    links = " ".join(f'<a href="#{section.name}">{html.escape(section.title)}</a>' for section in sections)
    body = "".join(
        f'<section id="{section.name}"><h2>{html.escape(section.title)}</h2>'
        + "".join(part.html for part in section.parts)
        + "</section>"
        for section in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{html.escape(title)}</title><style>{(assets / 'page.css').read_text()}</style></head><body>"
        f"<header><h1>{html.escape(title)}</h1><p class=quiet>{html.escape(subtitle)}</p><nav>{links}</nav></header>"
        f"<main>{body}</main><footer>{html.escape(foot)}</footer>"
        f'<script id="given" type="application/json">{data}</script>'
        f"<script>{get_plotlyjs()}</script><script>{(assets / 'page.js').read_text()}</script></body></html>\n"
    )
