"""Training-free scores as an evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from vitruvius.arch import Arch, refuse
from vitruvius.evaluation._evaluator import Evaluator

__all__ = ["ProxyEvaluator"]


class ProxyEvaluator(Evaluator):
    """Scores of `vitruvius.proxies`, which know nothing of training.

    options: of `vitruvius.proxies.score`: seed, num_classes, img_size, in_chans, batch_size, data, device.
    """

    def __init__(self, names: str | Sequence[str], **options: Any) -> None:
        from vitruvius.proxies import chosen_proxies

        self.names = (names,) if isinstance(names, str) else tuple(names)
        for proxy in chosen_proxies(self.names):
            if proxy.of_the_set:
                rule = f"proxy {proxy.name!r} ranks a set of candidates, and a search scores them one by one"
                refuse(rule, proxy.name, "another proxy")
        self._options = options
        self._coming: dict[Arch, None] = {}
        self._known: dict[Arch, dict[str, Any]] = {}
        """Scores of those that come next, until they are asked for."""
        self._setting: Any = None
        data = options.get("data")
        self.split = getattr(getattr(data, "search", data), "hash", None)

    def place(self, device: str | None) -> None:
        if device is not None:
            self._setting = None
            self._options = {**self._options, "device": device}

    def ahead(self, archs: Sequence[Arch]) -> None:
        self._coming, self._known = dict.fromkeys(archs), {}

    def scores(self, arch: Arch, rung: int = 0, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """With the first of those that come next, all of them are scored, if that is faster (collapsed DSS)."""
        from vitruvius.proxies import chosen_proxies, setting_of

        if self._setting is None:  # made where it is used: images are not sent to workers
            self._setting = setting_of(**self._options)
        together = all(proxy.together(arch, self._setting) > 1 for proxy in chosen_proxies(self.names))
        if together and arch in self._coming:
            archs, self._coming = list(self._coming), {}
            with suppress(Exception):  # one candidate can fail them all; then each has its own reason
                self._known = dict(zip(archs, self._scored(archs), strict=True))
        return self._known.pop(arch, None) or self._scored([arch])[0]

    def _scored(self, archs: Sequence[Arch]) -> list[dict[str, Any]]:
        from vitruvius.proxies import Batch, chosen_proxies, score_batch

        found = score_batch(chosen_proxies(self.names), Batch(archs), self._setting)
        columns = [values.tolist() for values in found.values()]
        return [dict(zip(found, row, strict=True)) for row in zip(*columns, strict=True)]

    def record(self) -> dict[str, Any]:
        plain = {key: value for key, value in self._options.items() if key not in ("data", "device")}
        return {**super().record(), **{key: list(v) if isinstance(v, tuple) else v for key, v in plain.items()}}
