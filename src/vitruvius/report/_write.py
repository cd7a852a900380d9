"""`write_report`: one page and its figures as files, from a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vitruvius.extras import require_extra
from vitruvius.files import replace_file
from vitruvius.report._attention import attention
from vitruvius.report._evolution import evolution
from vitruvius.report._latency import latency
from vitruvius.report._page import Section, page
from vitruvius.report._png import figure_png
from vitruvius.report._provenance import provenance
from vitruvius.report._read import Contents, read_contents
from vitruvius.report._scores import ranking, scores
from vitruvius.report._search import inherited, searches
from vitruvius.report._summary import state, summary
from vitruvius.report._training import health, retraining
from vitruvius.report.drawing import draw_png

__all__ = ["write_report"]

_SECTIONS = (
    summary,
    evolution,
    searches,
    scores,
    ranking,
    health,
    retraining,
    inherited,
    latency,
    attention,
    provenance,
)
"""In the order in which they are read: each from what a run folder holds, or nothing."""


def write_report(folder: str | Path, out: str | Path | None = None, pictures: bool = True) -> Path:
    """Writes `report.html` into the run folder or another one, and its figures as PNGs into `report/`; its path."""
    require_extra("report", "a report")
    contents = read_contents(folder)
    target = Path(folder) if out is None else Path(out)
    sections = [section for make in _SECTIONS if (section := make(contents)) is not None]
    subtitle = f"{contents.folder.resolve().name}, {state(contents)}"
    made = page(_title(contents), subtitle, sections, "Made by Vitruvius from the run folder alone.")
    replace_file(target / "report.html", lambda partial: partial.write_text(made, encoding="utf-8"))
    if pictures:
        _pictures(sections, target / "report")
    return target / "report.html"


def _pictures(sections: Sequence[Section], folder: Path) -> None:
    for section in sections:
        for number, part in enumerate(section.parts):
            for name, figure in part.figures.items():
                figure_png(folder / f"{_file_name(name)}.png", figure)
            for name, png in part.pictures.items():
                replace_file(folder / f"{_file_name(name)}.png", lambda partial, png=png: partial.write_bytes(png))
            if part.drawn:
                draw_png(folder / f"{section.name}-networks-{number}.png", part.drawn)


def _file_name(name: str) -> str:
    return name.replace("/", "-")


def _title(contents: Contents) -> str:
    source = (contents.record.get("data") or {}).get("source", "")
    kind = {"run": "Vitruvius run", "runs": "Vitruvius runs"}.get(contents.kind, f"Vitruvius {contents.kind}")
    return f"{kind}: {source}" if source else kind
