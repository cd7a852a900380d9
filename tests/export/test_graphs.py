"""Every family as a graph with a free batch: torch.export, ONNX, torch.compile."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import torch

from export.conftest import FAMILIES, SIZE, images, network, shaken
from vitruvius import build
from vitruvius.export._onnx import INPUT, OPSET, OUTPUT, export_program, run_onnx, write_onnx


@pytest.mark.parametrize("family", FAMILIES)
def test_torch_export_and_onnx_give_equal_logits_at_any_batch(family: str, tmp_path: Path) -> None:
    model, file = network(family), tmp_path / "model.onnx"
    batches = [images(count) for count in (1, 8, 3)]
    with torch.no_grad():
        expected = [model(batch) for batch in batches]
    assert expected[1].std() > 1e-3
    program = export_program(model)
    for batch, logits in zip(batches, expected, strict=True):
        torch.testing.assert_close(program.module()(batch), logits, rtol=1e-5, atol=1e-5)
    write_onnx(program, file, {"arch": model.arch.to_json()})
    for found, logits in zip(run_onnx(file, batches), expected, strict=True):
        torch.testing.assert_close(found, logits, rtol=1e-4, atol=1e-4)
    written = onnx.load(file)
    assert written.opset_import[0].version == OPSET
    (given,), (made,) = written.graph.input, written.graph.output
    assert (given.name, made.name) == (INPUT, OUTPUT)
    dims = given.type.tensor_type.shape.dim
    assert dims[0].dim_param
    assert [dim.dim_value for dim in dims[1:]] == [3, SIZE, SIZE]
    assert {prop.key: prop.value for prop in written.metadata_props}["arch"] == model.arch.to_json()
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_a_single_window_goes_into_onnx(tmp_path: Path) -> None:
    """S3's last stage: the heads of its window lie in memory as a fused kernel leaves them."""
    arch = FAMILIES["swin"]
    (block,) = arch.stages[-1].blocks
    last = replace(arch.stages[-1], blocks=(replace(block, window=4),))
    arch = replace(arch, stages=(*arch.stages[:-1], last))
    model = shaken(build(arch, num_classes=7, img_size=SIZE))
    write_onnx(export_program(model), tmp_path / "model.onnx", {})
    (found,) = run_onnx(tmp_path / "model.onnx", [images(3)])
    with torch.no_grad():
        torch.testing.assert_close(found, model(images(3)), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_dynamo_traces_the_whole_network(family: str) -> None:
    model = network(family)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(images(2)), model(images(2)), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a compiler")
@pytest.mark.parametrize("family", FAMILIES)
def test_torch_compile(family: str) -> None:
    model = network(family)
    torch._dynamo.reset()
    compiled = torch.compile(model)
    with torch.no_grad():
        for count in (2, 8):
            torch.testing.assert_close(compiled(images(count)), model(images(count)), rtol=1e-4, atol=1e-4)
