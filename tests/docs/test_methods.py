"""The pages of the methods name files, names, recipes, spaces and networks that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import vitruvius
from vitruvius import recipes
from vitruvius.pipeline.methods import METHODS

ROOT = Path(__file__).parents[2]
SOURCE = Path(vitruvius.__file__).parent
PAGES = sorted((ROOT / "docs" / "methods").glob("*.md"))


def test_every_method_has_a_page() -> None:
    assert {name for name in METHODS if name != "vitruvius"} | {"index"} == {page.stem for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"`([\w/]+\.py)(?::([\w.]+))?`", text)
    assert named
    for file, name in named:
        place = ROOT / file if file.startswith("bench/") else SOURCE / file
        assert place.is_file(), file
        defined = rf"^\s*(class|def) {name}\b|^{name}\b.*=|import .*\b{name}\b"
        assert not name or re.search(defined, place.read_text(), re.MULTILINE), f"{file}:{name}"
    for recipe in re.findall(r"recipe `([^`]+)`", text):
        assert recipe in recipes.names(), recipe
    for space in re.findall(r"space `([^`]+)`", text):
        assert space in vitruvius.spaces.SPACES, space
    networks = {
        network for row in re.findall(r"`zoo/networks/`[^|]*", text) for network in re.findall(r"`([a-z][\w-]+)`", row)
    }
    assert networks <= {*vitruvius.zoo.names()}, networks
    for link in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (page.parent / link).is_file(), link
