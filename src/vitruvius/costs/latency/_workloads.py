"""What is timed: whole networks and their parts, made ready to run in a setting, with the memory they take."""

from __future__ import annotations

import tempfile
import weakref
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from vitruvius.arch import Arch
from vitruvius.costs.latency._setting import Setting
from vitruvius.costs.latency._timing import Run


class Workload(Protocol):
    """Something that can be timed."""

    @property
    def name(self) -> str:
        """Equal for equal work: what the cache knows it by."""
        ...

    def module(self, setting: Setting) -> Any:
        """A module that takes one tensor."""
        ...

    def shape(self, setting: Setting) -> tuple[int, ...]:
        """Of that tensor, without the batch."""
        ...


@dataclass(frozen=True, slots=True)
class Network:
    """A whole network, with random weights: what it computes does not depend on them, nor how long it takes."""

    arch: Arch

    @property
    def name(self) -> str:
        return self.arch.id

    def module(self, setting: Setting) -> Any:
        from vitruvius.models import build

        classes, channels = setting.num_classes, setting.in_chans
        return build(self.arch, img_size=setting.img_size, num_classes=classes, in_chans=channels, seed=0)

    def shape(self, setting: Setting) -> tuple[int, ...]:
        assert isinstance(setting.img_size, tuple)
        return (setting.in_chans, *setting.img_size)


@dataclass(frozen=True, slots=True)
class Prepared:
    run: Run
    resident: int
    """Bytes of parameters and buffers."""
    live: int | None
    """Bytes of activations, the input included, when most of them are alive; None where the runtime does not say."""


def prepare(workload: Workload, setting: Setting) -> Prepared:
    """Builds, moves, compiles or exports it, and runs it once to see how much memory it takes.

    Memory on CUDA is what its allocator gave at the peak. On the CPU it is counted: the bytes of all tensors that are
    alive at once during the forward pass, plus parameters and buffers. Scratch space inside a kernel is not seen, nor
    are torch itself and what its allocator keeps. Of a compiled network on the CPU it is the plain one's.
    """
    import torch

    dtype = getattr(torch, setting.dtype)
    before = torch.cuda.memory_allocated(setting.device) if setting.on_gpu else 0
    module = workload.module(setting).eval().requires_grad_(False).to(device=setting.device, dtype=dtype)
    kept = {id(t): t for t in (*module.parameters(), *module.buffers())}.values()
    resident = sum(t.untyped_storage().nbytes() for t in kept)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(setting.batch, *workload.shape(setting), generator=generator).to(setting.device, dtype)
    if setting.runtime == "onnx":
        return Prepared(_session(module, x, setting), resident, None)
    forward = torch.compile(module) if setting.compiled else module

    def run() -> object:
        with torch.inference_mode():
            return forward(x)

    if not setting.on_gpu:
        return Prepared(run, resident, live_bytes(module, x))
    run()  # compiles, and lets libraries take their workspaces, which stay
    torch.cuda.reset_peak_memory_stats(setting.device)
    run()
    torch.cuda.synchronize(setting.device)
    peak = int(torch.cuda.max_memory_allocated(setting.device)) - before
    return Prepared(run, resident, max(peak - resident, 0))


def live_bytes(module: Any, x: Any) -> int:
    """Bytes of the input and of the activations of a forward pass, when most of them are alive."""
    import torch
    from torch.utils import _python_dispatch
    from torch.utils._pytree import tree_leaves

    base: Any = _python_dispatch.TorchDispatchMode

    class LiveBytes(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.now = self.peak = x.untyped_storage().nbytes()
            kept = (x, *module.parameters(), *module.buffers())
            self.known: set[int] = {tensor.untyped_storage()._cdata for tensor in kept}

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for tensor in tree_leaves(out):
                if isinstance(tensor, torch.Tensor):
                    self._see(tensor.untyped_storage())
            return out

        def _see(self, storage: Any) -> None:
            """Views and results written in place have a storage that is known."""
            if storage._cdata in self.known:
                return
            self.known.add(storage._cdata)
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())

        def _gone(self, key: int, size: int) -> None:
            self.known.discard(key)
            self.now -= size

    with torch.inference_mode(), LiveBytes() as mode:
        module(x)
    return int(mode.peak)


def _session(module: Any, x: Any, setting: Setting) -> Run:
    """The network as ONNX Runtime runs it."""
    import logging

    import torch

    onnxruntime: Any = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = setting.threads, 1
    options.log_severity_level = 3
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="vitruvius-") as folder, torch.inference_mode():
        file = str(Path(folder) / "network.onnx")
        torch.onnx.export(module, (x,), file, dynamo=True, input_names=["x"], verbose=False)
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    feed = {"x": x.numpy()}
    return lambda: session.run(None, feed)
