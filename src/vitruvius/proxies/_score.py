"""`score`: any proxies of any architectures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vitruvius.arch import Arch, ImageSize, refuse
from vitruvius.arrays import IntArray
from vitruvius.proxies._base import PROXIES, Batch, Floats, Measured, OneByOne, Proxy
from vitruvius.proxies._candidate import Candidate, steady
from vitruvius.proxies._setting import BATCH, Setting
from vitruvius.spaces import Space

if TYPE_CHECKING:
    from vitruvius.data import Data, SearchData

__all__ = ["best_first", "measure", "score", "score_batch", "setting_of"]


def score(
    names: str | Sequence[str],
    archs: Arch | Sequence[Arch] | IntArray,
    *,
    space: Space | None = None,
    **options: Any,
) -> Any:
    """Training-free scores of architectures: higher is better, NaN or infinite where there is none.

    A number for one architecture and a list for a list of them; with several names, a dict of those. Proxies that are
    asked for together share the passes that they can share.

    names: of `vitruvius.proxies.PROXIES`; "az_nas" ranks the architectures among themselves, so its score depends on
        which they are.
    archs: one, a list, or vectors (n, G) of `space`.
    options: `seed`, `num_classes`, `img_size` (the space's, else 224), `in_chans`, `batch_size`, `device`, and `data`
        (a source of images as `data.load` takes it, or what it gave) for real images of the train split.
    """
    chosen = chosen_proxies([names] if isinstance(names, str) else names)
    batch = _batch(archs, space)
    single = isinstance(archs, Arch) or (isinstance(archs, np.ndarray) and archs.ndim == 1)
    columns = score_batch(chosen, batch, setting_of(space=space, **options))
    found = {name: values.item() if single else values.tolist() for name, values in columns.items()}
    return found[chosen[0].name] if isinstance(names, str) else found


def setting_of(
    *,
    space: Space | None = None,
    seed: int = 0,
    num_classes: int | None = None,
    img_size: ImageSize | None = None,
    in_chans: int | None = None,
    batch_size: int = BATCH,
    data: str | Data | SearchData | None = None,
    device: str = "cpu",
) -> Setting:
    """The setting of `score`'s options; classes and channels are the data's, else 1000 and 3."""
    from vitruvius.data import Data, load

    if isinstance(data, str):
        data = load(data)
    if isinstance(data, Data):
        data = data.search
    if num_classes is None:
        num_classes = 1000 if data is None else len(data.classes)
    if in_chans is None:
        in_chans = 3 if data is None else data.in_chans
    if img_size is None:
        img_size = 224 if space is None else space.img_size
    return Setting(
        seed=seed,
        num_classes=num_classes,
        img_size=img_size,
        in_chans=in_chans,
        batch_size=batch_size,
        data=data,
        device=device,
    )


def chosen_proxies(names: Sequence[str]) -> list[Proxy]:
    if isinstance(names, str) or not names:
        refuse("which proxies?", names, ", ".join(PROXIES))
    if len(set(names)) < len(names):
        refuse("a proxy is named twice", list(names), "each once")
    return [PROXIES[name] for name in names]


def _batch(archs: Arch | Sequence[Arch] | IntArray, space: Space | None) -> Batch:
    if isinstance(archs, Arch):
        return Batch([archs], space)
    if isinstance(archs, np.ndarray):
        if space is None:
            refuse("encoded architectures need their space", archs.shape, "space=...")
        return Batch(space.checked(np.atleast_2d(archs)), space)
    if not isinstance(archs, Sequence) or not all(isinstance(arch, Arch) for arch in archs):
        refuse("proxies score an Arch, a list of them, or a space's vectors", archs, "zoo.load('deit-tiny'), say")
    return Batch(list(archs), space)


def measure(proxies: Sequence[Proxy], batch: Batch, setting: Setting) -> Measured:
    """Every part of the proxies, of each candidate on its own: what may be kept, joined and put in another order."""
    measured: Measured = {}
    shared = [proxy for proxy in proxies if isinstance(proxy, OneByOne)]
    for proxy in proxies:
        if not isinstance(proxy, OneByOne):
            measured |= proxy.measure(batch, setting)
    if not shared:
        return measured
    records = frozenset().union(*(proxy.needs.records for proxy in shared))
    order = max(proxy.needs.gradients for proxy in shared)
    rows: list[dict[str, float]] = []
    with steady():
        for arch in batch.archs:
            candidate = Candidate(arch, setting, records, order)
            rows.append({})
            for proxy in shared:
                rows[-1] |= proxy.of(candidate)
    for proxy in shared:
        measured |= {part: np.array([row[part] for row in rows], dtype=np.float64) for part in proxy.parts}
    return measured


def score_batch(proxies: Sequence[Proxy], batch: Batch, setting: Setting) -> dict[str, Floats]:
    """(n,) of each proxy, by its name."""
    measured = measure(proxies, batch, setting)
    return {proxy.name: proxy.combine(measured) for proxy in proxies}


def best_first(scores: Mapping[Any, float] | Sequence[float] | Floats) -> list[Any]:
    """Places (or keys) by score, the best first, equals in the order given; what has no finite score is left out."""
    pairs = scores.items() if isinstance(scores, Mapping) else enumerate(scores)
    finite = [(place, float(value)) for place, value in pairs if np.isfinite(value)]
    return [place for place, _ in sorted(finite, key=lambda pair: -pair[1])]
