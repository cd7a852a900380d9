"""Under what conditions a network is timed, and on what machine."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from vitruvius.arch import ImageSize, image_shape, refuse, require_choice, require_keys, require_positive
from vitruvius.costs import check_counting

Dtype: TypeAlias = Literal["float32", "float16", "bfloat16"]
Runtime: TypeAlias = Literal["torch", "onnx"]
ClockName: TypeAlias = Literal["wall", "cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """All that decides a measurement but the network and the machine."""

    img_size: ImageSize = 224
    batch: int = 1
    num_classes: int = 1000
    in_chans: int = 3
    device: str = "cpu"
    """cpu, cuda, cuda:1, ..."""
    dtype: Dtype = "float32"
    threads: int = 1
    """Of the CPU, inside one operation."""
    compiled: bool = False
    """Through `torch.compile`."""
    runtime: Runtime = "torch"
    clock: ClockName = "wall"
    """The wall's; or the processor time of the one thread that computes ("cpu"), as if the core were its own."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "img_size", image_shape(self.img_size))
        require_positive("the batch", self.batch)
        require_positive("the number of threads", self.threads)
        check_counting(self.num_classes, self.in_chans)
        if not isinstance(self.device, str) or not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            refuse("unknown device", self.device, "cpu, cuda, cuda:1, ...")
        require_choice("dtype", self.dtype, get_args(Dtype))
        require_choice("runtime", self.runtime, get_args(Runtime))
        require_choice("clock", self.clock, get_args(ClockName))
        if type(self.compiled) is not bool:
            refuse("compiled must be true or false", self.compiled, "true, false")
        if self.clock == "cpu" and (self.device != "cpu" or self.threads != 1):
            where = f"{self.device}, {self.threads} threads"
            refuse("the processor's clock counts one thread of the CPU", where, "device='cpu', threads=1")
        if self.runtime == "onnx" and (self.compiled or self.device != "cpu" or self.dtype != "float32"):
            how = f"{self.device}, {self.dtype}{', compiled' if self.compiled else ''}"
            refuse("ONNX Runtime is timed on the CPU, as exported", how, "device='cpu', dtype='float32'")

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def itemsize(self) -> int:
        return 4 if self.dtype == "float32" else 2

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        return {**data, "img_size": list(data["img_size"])}

    @classmethod
    def from_dict(cls, data: object) -> Setting:
        return cls(**require_keys("a latency setting", data, (), [field.name for field in fields(cls)]))

    def __str__(self) -> str:
        high, wide = image_shape(self.img_size)
        size = f"{high} px" if high == wide else f"{high}x{wide} px"
        how = "ONNX Runtime" if self.runtime == "onnx" else "compiled" if self.compiled else "torch"
        where = self.device if self.on_gpu else f"{self.threads} CPU thread{'s' if self.threads > 1 else ''}"
        clock = ", processor time" if self.clock == "cpu" else ""
        return f"{size}, batch {self.batch}, {self.dtype}, {where}, {how}{clock}"


def machine_of(setting: Setting) -> str:
    """The name of the processor that the setting runs on."""
    if setting.on_gpu:
        import torch

        return str(torch.cuda.get_device_name(setting.device))
    return _cpu_name()


@cache
def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return f"{line.partition(':')[2].strip()} x {os.cpu_count()}"
    except OSError:  # not Linux
        pass
    return f"{platform.processor() or platform.machine()} x {os.cpu_count()}"


def versions_of(setting: Setting) -> dict[str, str]:
    """Of what a measurement depends on."""
    names = ("vitruvius", "torch", *(("onnxruntime",) if setting.runtime == "onnx" else ()))
    return {name: _version(name) for name in names}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def require_available(setting: Setting) -> None:
    """Refuses, before any work, what this machine cannot do."""
    import torch

    if setting.runtime == "onnx":
        missing = [name for name in ("onnx", "onnxruntime", "onnxscript") if find_spec(name) is None]
        if missing:
            refuse(f"the runtime 'onnx' needs {', '.join(missing)}", "not installed", "pip install 'vitruvius[onnx]'")
    if setting.on_gpu:
        if not torch.cuda.is_available():
            refuse("this machine has no CUDA device that torch can use", setting.device, "cpu")
        if (index := torch.device(setting.device).index or 0) >= torch.cuda.device_count():
            refuse("there is no such CUDA device", setting.device, f"cuda:0..cuda:{torch.cuda.device_count() - 1}")
        if index >= 0 and setting.dtype == "bfloat16" and not torch.cuda.is_bf16_supported():
            refuse("this CUDA device does not compute in bfloat16", setting.device, "float32, float16")
    if setting.compiled:
        _require_compiler(setting.device)


@cache
def _require_compiler(device: str) -> None:
    """One small function is compiled, since nothing else says that it will work (a C++ compiler, Triton, ...)."""
    import torch

    try:
        compiled: Any = torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).to(device))
        with torch.inference_mode():
            compiled(torch.ones(4, 4, device=device))
    except Exception as error:
        why = str(error).strip().splitlines()[0][:120] if str(error).strip() else type(error).__name__
        refuse(f"torch.compile does not work here ({why})", "compiled", "without it, or runtime='onnx'")
