"""ONNX: through `torch.export` with a free batch, so that a batch which is not free is an error and not a surprise."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from vitruvius.models import Backbone

__all__ = ["INPUT", "OPSET", "OUTPUT", "export_program", "run_onnx", "write_onnx"]

OPSET = 18
"""What torch's exporter writes of its own; other opsets go through a converter."""
INPUT, OUTPUT = "images", "logits"


def export_program(model: Backbone) -> torch.export.ExportedProgram:
    """The network as a graph, for any number of images."""
    shape = (2, model.in_chans, *model.img_size)
    # Two images: the number 1 would be taken for a constant.
    return torch.export.export(model, (torch.zeros(shape),), dynamic_shapes=({0: torch.export.Dim("batch")},))


def write_onnx(program: torch.export.ExportedProgram, path: Path, about: Mapping[str, str]) -> None:
    """The graph in one file, `about` in its metadata."""
    import onnx

    with _quiet():
        torch.onnx.export(
            program,
            f=str(path),
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            input_names=[INPUT],
            output_names=[OUTPUT],
            verbose=False,
        )
    written = onnx.load(path)
    onnx.helper.set_model_props(written, dict(about))
    onnx.checker.check_model(written)
    onnx.save(written, path)


def run_onnx(path: Path, batches: list[Tensor]) -> list[Tensor]:
    """The logits of each batch, by ONNX Runtime on the CPU."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return [torch.from_numpy(session.run([OUTPUT], {INPUT: batch.numpy()})[0]) for batch in batches]


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter tells its own developers of deprecations inside it."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
