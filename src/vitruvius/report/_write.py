"""`write_report`: one page and its figures as files, from a run folder."""

from __future__ import annotations

from pathlib import Path

from vitruvius.arch import Arch
from vitruvius.files import replace_file
from vitruvius.report import _evolution, _search, _sections
from vitruvius.report._page import Section, page
from vitruvius.report._png import figure_png
from vitruvius.report._read import Contents, read_contents
from vitruvius.report.drawing import draw_png, drawing

__all__ = ["write_report"]

_SECTIONS = (
    _sections.summary,
    _evolution.evolution,
    _search.searches,
    _sections.health,
    _sections.retraining,
    _search.inherited,
    _sections.latency,
    _sections.attention,
    _sections.provenance,
)


def write_report(folder: str | Path, out: str | Path | None = None, pictures: bool = True) -> Path:
    """Writes `report.html` into the run folder or another one, and its figures as PNGs into `report/`; its path."""
    contents = read_contents(folder)
    target = Path(folder) if out is None else Path(out)
    sections = [section for make in _SECTIONS if (section := make(contents)) is not None]
    made = page(_title(contents), _subtitle(contents), sections, "Made by Vitruvius from the run folder alone.")
    replace_file(target / "report.html", lambda partial: partial.write_text(made, encoding="utf-8"))
    if pictures:
        _pictures(contents, sections, target / "report")
    return target / "report.html"


def _pictures(contents: Contents, sections: list[Section], folder: Path) -> None:
    for section in sections:
        for part in section.parts:
            for name, figure in part.figures.items():
                figure_png(folder / f"{name.replace('/', '-')}.png", figure)
    if rows := contents.result.get("rows"):
        size = tuple(contents.result["img_size"])
        drawn = {row["name"]: drawing(Arch.from_dict(row["arch"]), size) for row in rows}
        draw_png(folder / "networks.png", drawn, {row["name"]: [f"{row['macs'] / 1e6:.4g} M MACs"] for row in rows})


def _title(contents: Contents) -> str:
    source = contents.record.get("data", {}).get("source", "")
    return f"{contents.kind}: {source}" if source else contents.kind


def _subtitle(contents: Contents) -> str:
    return f"{contents.folder.name}"
