"""Inherited accuracy: what an architecture scores on search-validation with a superformer's weights."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from vitruvius.arch import Arch, refuse, require_choice, require_positive
from vitruvius.data import SearchData, eval_batches, stream_batches
from vitruvius.evaluation._evaluator import Evaluator
from vitruvius.superformer import Superformer

__all__ = ["InheritedAccuracy", "stratified_order"]

Precision: TypeAlias = Literal["no", "fp16", "bf16"]
_TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
_MEMORY = 4 * 2**30


def stratified_order(labels: np.ndarray, seed: int) -> np.ndarray:
    """An order of images whose every beginning has the classes in their proportions, as nearly as can be."""
    rng = np.random.default_rng([seed, len(labels)])
    place = np.empty(len(labels))
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        place[members] = (np.arange(len(members)) + rng.random()) / len(members)
    return np.argsort(place, kind="stable")


class InheritedAccuracy(Evaluator):
    """Top-1 accuracy in percent, of search-validation or a stratified part of it.

    images: so many of search-validation, or (a fraction) such a part of it; all of it unless said otherwise.
    shares: successive halving: parts of those images on which candidates are measured one after the other, the last
        of them 1. After each but the last, only the best go on, `keep` of them.
    seed: of which images a part has.
    memory: so many bytes of prepared images are kept; more are prepared anew for each candidate.
    """

    names = ("accuracy",)

    def __init__(
        self,
        superformer: Superformer,
        data: SearchData,
        *,
        images: float | int | None = None,
        shares: Sequence[float] = (1.0,),
        keep: float = 0.5,
        batch_size: int = 256,
        precision: Precision = "no",
        seed: int = 0,
        memory: int = _MEMORY,
    ) -> None:
        require_positive("batch_size", batch_size)
        require_choice("precision", precision, get_args(Precision))
        if len(data.classes) != superformer.num_classes:
            refuse("the images are of other classes than the superformer", len(data.classes), superformer.num_classes)
        if data.in_chans != superformer.in_chans:
            refuse("the images have other channels than the superformer", data.in_chans, superformer.in_chans)
        ends = [0.0, *map(float, shares)]
        if len(ends) < 2 or ends[-1] != 1 or any(after <= before for before, after in pairwise(ends)):
            refuse("shares of the images grow to 1", tuple(shares), "(1.0,), (0.25, 1.0), ...")
        if not 0 < keep <= 1:
            refuse("keep is the part of the candidates that goes on", keep, "above 0, up to 1")
        self.superformer = superformer.eval()
        self.split, self.shares, self.keep = data.hash, tuple(ends[1:]), keep
        self.rungs = len(self.shares)
        self._data, self._batch_size, self._precision = data, batch_size, precision
        chosen = stratified_order(data.val.labels, seed)[: _count(images, len(data.val))]
        cuts = [round(end * len(chosen)) for end in ends]
        if any(after == before for before, after in pairwise(cuts)):
            refuse("every share needs images", tuple(shares), f"larger ones of {len(chosen)} images")
        self._parts = [np.sort(chosen[first:last]) for first, last in pairwise(cuts)]
        self.images = len(chosen)
        self._record = {"images": self.images, "part_seed": seed, "shares": list(self.shares), "keep": keep}
        height, width = superformer.img_size
        self._keeps = self.images * height * width * data.in_chans * 4 <= memory
        self._kept: dict[int, list[tuple[Tensor, Tensor]]] = {}
        self._device = torch.device("cpu")
        self.forward_seconds = 0.0
        """Spent in the network, since the beginning (on a GPU, in launching it)."""

    def __getstate__(self) -> dict[str, Any]:
        """What goes to another process: no skeletons, which are made again where they are needed."""
        self.superformer.drop_plans()
        return {**self.__dict__, "_kept": {}}

    def place(self, device: str | None) -> None:
        found = ("cuda" if torch.cuda.is_available() else "cpu") if device is None else device
        self._device = torch.device(found)
        self.superformer.to(self._device)
        self._kept = {}

    def _batches(self, rung: int) -> Iterable[tuple[Tensor, Tensor]]:
        if rung in self._kept:
            return self._kept[rung]
        data = self._data
        options: dict[str, Any] = {
            "img_size": self.superformer.img_size,
            "mean": data.mean,
            "std": data.std,
            "indices": self._parts[rung],
            "device": self._device,
        }
        if not self._keeps:
            return stream_batches(data.val, self._batch_size, **options)
        self._kept[rung] = eval_batches(data.val, self._batch_size, **options)
        return self._kept[rung]

    @torch.no_grad()
    def scores(self, arch: Arch, rung: int = 0, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Accuracy, and as details the images seen, right ones and the mean cross-entropy."""
        totals = torch.zeros(2, dtype=torch.float64)
        for logits, labels in self._logits(arch, rung):
            logits = logits.float()
            if not bool(torch.isfinite(logits).all()):
                raise ArithmeticError("its logits are not all finite")
            right = (logits.argmax(1) == labels).sum()
            loss = F.cross_entropy(logits, labels, reduction="sum")
            totals += torch.stack([right.double(), loss.double()]).cpu()
        seen, right, loss = len(self._parts[rung]), *totals.tolist()
        if before:
            seen, right, loss = seen + before["images"], right + before["right"], loss + before["loss_sum"]
        mean = round(loss / seen, 6)
        return {"accuracy": 100 * right / seen, "images": seen, "right": right, "loss_sum": loss, "loss": mean}

    def _logits(self, arch: Arch, rung: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The slices are taken once for all batches."""
        plan = self.superformer.plan_of(arch, None, 0)
        plan.skeleton.eval()
        tensors = self.superformer.tensors_of(plan)
        dtype = next(iter(tensors.values())).dtype
        reduced = self._precision != "no"
        for x, labels in self._batches(rung):
            start = time.perf_counter()
            with torch.autocast(self._device.type, _TYPES.get(self._precision, torch.bfloat16), enabled=reduced):
                logits = functional_call(plan.skeleton, tensors, (x.to(dtype),), tie_weights=False)
            self.forward_seconds += time.perf_counter() - start
            yield logits, labels

    def survivors(self, rung: int, candidates: int) -> int:
        return max(1, round(self.keep * candidates))

    def cost(self) -> str:
        """How many images a candidate is measured on, in the mean."""
        if self.rungs == 1:
            return f"{self.images:,} images a candidate"
        mean = sum(len(part) * self.keep**rung for rung, part in enumerate(self._parts))
        sizes = " then ".join(f"{sum(map(len, self._parts[: rung + 1])):,}" for rung in range(self.rungs))
        part = mean / self.images
        return f"{sizes} images, {self.keep:.0%} going on: {mean:,.0f} a candidate in the mean, {part:.0%} of all"

    def record(self) -> dict[str, Any]:
        return {**super().record(), **self._record, "precision": self._precision, "superformer": _digest(self)}


def _count(images: float | int | None, most: int) -> int:
    if images is None:
        return most
    whole = type(images) is int and 1 <= images <= most
    if not whole and not (type(images) is float and 0 < images <= 1):
        refuse("images are a part of search-validation, or a number of them", images, f"0 < part <= 1, or 1..{most:,}")
    return int(images) if whole else max(1, round(images * most))


def _digest(evaluator: InheritedAccuracy) -> str:
    """Of the weights that are inherited."""
    digest = hashlib.sha256()
    for name, tensor in sorted(evaluator.superformer.state_dict().items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.detach().cpu().float().numpy()).data)
    return digest.hexdigest()[:16]
