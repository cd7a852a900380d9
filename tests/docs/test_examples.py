"""The Python of README.md and docs/ runs: the ```python blocks of a page, one after the other, in an empty folder.

What needs the reader's own files is marked ```py, and only has to be Python. Console blocks name commands and options
that exist; YAML of spaces is read.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from vitruvius import Space
from vitruvius.cli import app
from vitruvius.registry import Registry

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in _BLOCK.findall(page.read_text()) if language in languages]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an example adds is gone after it."""
    from vitruvius.proxies import PROXIES
    from vitruvius.search import SEARCHERS
    from vitruvius.superformer.sharing import RULES
    from vitruvius.training.strategies import STRATEGIES

    registry: Registry[object]
    for registry in (PROXIES, SEARCHERS, RULES, STRATEGIES):  # type: ignore[assignment]
        for name, value in vars(registry).items():
            if isinstance(value, dict):
                monkeypatch.setattr(registry, name, dict(value))


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name_of)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    room: dict[str, object] = {}
    for number, text in enumerate(blocks(page, "python"), start=1):
        exec(compile(text, f"{name_of(page)}, block {number}", "exec"), room)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "py")], ids=name_of)
def test_what_needs_files_is_python(page: Path) -> None:
    for text in blocks(page, "py"):
        compile(text, name_of(page), "exec")


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")], ids=name_of)
def test_spaces_in_yaml_are_read(page: Path, tmp_path: Path) -> None:
    for text in blocks(page, "yaml"):
        if "family:" in text:
            (tmp_path / "space.yaml").write_text(text)
            assert Space.from_yaml(tmp_path / "space.yaml").networks > 1


def commands(page: Path) -> Iterator[list[str]]:
    for text in blocks(page, "console", "text", "bash", "sh"):
        for line in re.sub(r"\\\n\s*", " ", text).splitlines():
            found = re.match(r"\$ (?:\S*/)?vitruvius (.*)", line)
            if found:
                yield shlex.split(found[1], comments=True)


@pytest.mark.parametrize("page", [page for page in PAGES if list(commands(page))], ids=name_of)
def test_commands_and_options_exist(page: Path) -> None:
    group = typer.main.get_command(app)
    for words in commands(page):
        known = group.commands  # type: ignore[attr-defined]
        assert words[0] in known, " ".join(words)
        options = {name for each in known[words[0]].params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
        for word in words[1:]:
            if word.startswith("--"):
                assert word.partition("=")[0] in options, f"{word} of {' '.join(words)}"
