"""The page in a headless Chromium: no complaints, hover and click work, laptop and phone, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from report.browser import CHROMIUM, Page, opened
from vitruvius.report import write_report

pytest.importorskip("plotly")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium on the path (Debian: apt install chromium)")

SIZES = {"laptop": (1366, 800), "phone": (390, 844)}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with opened(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="module")
def reports(runs: Path, scored: Path, ranked: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("reports")
    found = {"all": runs, "score": scored, "rank": ranked}
    return {name: write_report(folder, out / name, pictures=False) for name, folder in found.items()}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_load_and_fit(browser: Page, reports: dict[str, Path], size: str, dark: bool) -> None:
    width, height = SIZES[size]
    for file in reports.values():
        browser.complaints.clear()
        browser.open(file, width=width, height=height, dark=dark, touch=size == "phone")
        assert browser.complaints == []
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        drawn = "[...document.querySelectorAll('.plot')].every((place) => place.querySelector('.main-svg'))"
        assert browser.evaluate(drawn)
        shade = browser.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")
        assert (shade < 128) is dark
        text = "getComputedStyle(document.querySelector('.plot .xtitle')).fill.match(/\\d+/g).map(Number)[0]"
        assert (browser.evaluate(text) > 128) is dark  # the figures' own texts follow


POINT = """(() => {
  const place = document.querySelector('[data-figure="search-search-macs"]');
  place.scrollIntoView({block: 'center', behavior: 'instant'});
  const trace = place.data[1], box = place.getBoundingClientRect(), layout = place._fullLayout;
  return [
    box.left + layout.xaxis._offset + layout.xaxis.d2p(trace.x[0]),
    box.top + layout.yaxis._offset + layout.yaxis.d2p(trace.y[0]),
    trace.customdata[0][0],
  ];
})()"""


@pytest.mark.parametrize("size", SIZES)
def test_hover_says_and_click_draws_the_network(browser: Page, reports: dict[str, Path], size: str) -> None:
    width, height = SIZES[size]
    browser.complaints.clear()
    browser.open(reports["all"], width=width, height=height)
    x, y, arch = browser.evaluate(POINT)
    browser.move(x - 40, y - 40)
    browser.move(x, y)
    browser.until("document.querySelector('[data-figure=\"search-search-macs\"] .hovertext')")
    said = browser.evaluate("document.querySelector('[data-figure=\"search-search-macs\"] .hovertext').textContent")
    assert "candidate" in said
    assert "width" in said
    picked = "document.getElementById('search-search-macs-picked')"
    assert browser.evaluate(f"{picked}.childElementCount") == 0
    browser.click(x, y)
    browser.until(f"{picked}.querySelector('svg rect')")
    assert browser.evaluate(f"{picked}.dataset.drawn") == arch
    assert arch in browser.evaluate(f"{picked}.querySelector('svg title').textContent")
    assert browser.complaints == []
