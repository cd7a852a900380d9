"""Training-free scores as an evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        data = options.get("data")
        self.split = getattr(getattr(data, "search", data), "hash", None)

    def place(self, device: str | None) -> None:
        if device is not None:
            self._options = {**self._options, "device": device}

    def scores(self, arch: Arch, rung: int = 0, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        from vitruvius.proxies import score

        found: dict[str, Any] = score(self.names, arch, **self._options)
        return found

    def record(self) -> dict[str, Any]:
        plain = {key: value for key, value in self._options.items() if key not in ("data", "device")}
        return {**super().record(), **{key: list(v) if isinstance(v, tuple) else v for key, v in plain.items()}}
