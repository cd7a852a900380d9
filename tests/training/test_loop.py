"""The loop: optimiser, rate, order of images, health, retraining from slices, fine-tuning, half precision."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from timm.scheduler import CosineLRScheduler

from training.conftest import NOISY
from vitruvius import Superformer, build, spaces, zoo
from vitruvius.training import FinetuneConfig, RetrainConfig, SuperformerConfig, read_config, train
from vitruvius.training import evaluate as evaluate_module
from vitruvius.training import feed as feed_module
from vitruvius.training import loop as loop_module
from vitruvius.training.config import Settings
from vitruvius.training.evaluate import Accuracy, Judge
from vitruvius.training.feed import Order
from vitruvius.training.optim import MovingAverage, learning_rate, make_optimizer
from vitruvius.training.plan import make_plan
from vitruvius.training.processes import make_accelerator


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_the_rate_is_timms() -> None:
    config = Settings(epochs=30, batch_size=1024, lr=5e-4, lr_reference_batch=512, warmup_epochs=5, min_lr=1e-5)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1e-3)
    options = {"warmup_t": 35, "warmup_lr_init": 1e-6, "lr_min": 1e-5}
    theirs = CosineLRScheduler(optimizer, t_initial=30 * 7, **options, t_in_epochs=False)
    for step in range(30 * 7):
        theirs.step_update(step)
        assert learning_rate(config, step, 7) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
    constant = config.model_copy(update={"schedule": "constant", "warmup_epochs": 0})
    assert learning_rate(constant, 200, 7) == 1e-3


def test_decay_spares_biases_norms_tokens_and_positions() -> None:
    config = Settings(weight_decay=0.3)
    model = build(zoo.load("deit-tiny"), num_classes=3)
    superformer = Superformer(spaces.load("vitas-nano"), num_classes=3, seed=0)
    for each, table in ((model, "pos_embed"), (superformer, "shared.pos_embed@patch=4")):
        names = {id(parameter): name for name, parameter in each.named_parameters()}
        groups = make_optimizer(each, config).param_groups
        decayed = {names[id(p)] for group in groups if group["weight_decay"] == 0.3 for p in group["params"]}
        spared = {names[id(p)] for group in groups if group["weight_decay"] == 0.0 for p in group["params"]}
        assert len(decayed) + len(spared) == len(names)
        assert table in spared
        assert all(name.replace("/", ".").split("@")[0].endswith("weight") for name in decayed)
        assert not any("norm" in name or "bias" in name or "cls_token" in name for name in decayed)
        assert any("q" in name for name in decayed)


def test_parameters_may_join_later() -> None:
    """Those of an architecture that no step has drawn so far; neither decay nor momentum touches them before."""
    for name in ("sgd", "adamw"):
        config = Settings(optimizer=name, lr=0.1, weight_decay=0.5)
        model = build(spaces.load("vitas-nano").smallest, num_classes=3, seed=0)
        begun = {key: tensor.clone() for key, tensor in model.state_dict().items()}
        optimizer = make_optimizer(model, config)
        late = model.head.weight
        for step in range(3):
            for parameter in model.parameters():
                parameter.grad = None if parameter is late and step == 0 else torch.ones_like(parameter)
            optimizer.step()
            if step == 0:
                assert torch.equal(late, begun["head.weight"])
                assert not torch.equal(model.norm.weight, begun["norm.weight"])
        if name == "sgd":  # Nesterov, by hand: two steps of late, three of the norm, which does not decay
            weight, momentum = begun["head.weight"], torch.zeros(())
            for _ in range(2):
                gradient = 1 + 0.5 * weight
                momentum = 0.9 * momentum + gradient
                weight = weight - 0.1 * (gradient + 0.9 * momentum)
            torch.testing.assert_close(late.detach(), weight)
            pulled = 0.1 * ((1 + 0.9) + (1 + 0.9 * 1.9) + (1 + 0.9 * 2.71))
            torch.testing.assert_close(model.norm.weight.detach(), begun["norm.weight"] - pulled)


@given(
    images=st.integers(8, 60),
    batch=st.sampled_from([4, 8]),
    copies=st.sampled_from([1, 3]),
    processes=st.sampled_from([1, 2]),
)
def test_every_epoch_sees_its_images_and_processes_share_them(
    images: int, batch: int, copies: int, processes: int
) -> None:
    order = Order(images, batch, seed=3, copies=copies)
    for epoch in (0, 1):
        steps = [order.of(epoch * order.steps_per_epoch + place) for place in range(order.steps_per_epoch)]
        seen = np.concatenate([indices for indices, _ in steps])
        counts = np.bincount(seen, minlength=images)
        assert counts.max() <= copies
        assert len(seen) == images // batch * batch
        keys = [key for _, keys in steps for key in keys]
        assert len(set(keys)) == len(keys)
    first, second = order.of(0)[0], order.of(order.steps_per_epoch)[0]
    assert images < 20 or list(first) != list(second)
    shares = [first[process::processes] for process in range(processes)]
    assert sorted(np.concatenate(shares)) == sorted(first)


@pytest.mark.parametrize("together", [1, 10_000, 10**9])
@pytest.mark.parametrize("change", [{}, NOISY, {"crop": "none"}, {"erasing": 0.5, "repeated_augmentation": 3}])
def test_batches_prepared_together_are_those_of_each_step(
    change: dict[str, Any], together: int, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(read_config(SuperformerConfig, settings | change))
    monkeypatch.setattr(feed_module, "_TOGETHER", together)
    for process in (0, 1):
        feed = feed_module.Feed(plan.images, plan.augment, plan.label, plan.order, process, 2)
        made = list(feed.batches(3, 13, 0))
        assert len(made) == 10
        for step, batch in zip(range(3, 13), made, strict=True):
            assert len(batch[0]) == plan.config.batch_size // 2
            for part, alone in zip(batch, feed[step], strict=True):
                assert torch.equal(part, alone)


def test_the_moving_average_by_hand() -> None:
    model = torch.nn.Linear(2, 1, bias=False)
    average = MovingAverage(model, 0.75)
    weights = [model.weight.detach().clone()]
    for value in (1.0, 2.0, 4.0):
        torch.nn.init.constant_(model.weight, value)
        average.update(model)
        weights.append(0.75 * weights[-1] + 0.25 * value)
    torch.testing.assert_close(average.tensors["weight"], weights[-1])
    with average.worn_by(model):
        torch.testing.assert_close(model.weight.detach(), weights[-1])
    assert torch.equal(model.weight.detach(), torch.full((1, 2), 4.0))


def test_a_run_says_what_it_does(settings: dict[str, Any], tmp_path: Path) -> None:
    run = train(read_config(SuperformerConfig, settings), tmp_path / "run", quiet=True)
    epochs = [line for line in lines(run.folder) if line["event"] == "epoch"]
    assert [line["epoch"] for line in epochs] == [1, 2]
    assert all(math.isfinite(line["loss"]) for line in epochs)
    shown = epochs[-1]["accuracy"]
    assert set(shown) == {"smallest", "random 1", "random 2", "largest"}
    assert epochs[-1]["healthy"] == (shown["largest"]["top1"] >= shown["smallest"]["top1"])
    assert shown == run.result["validation"]["accuracy"]
    assert list((run.folder / "tensorboard").glob("events*"))
    assert len((run.folder / "times.jsonl").read_text().splitlines()) == 2
    assert run.record["data"]["hash"] == run.data.search.hash
    assert all(tensor.isfinite().all() for tensor in run.superformer().state_dict().values())


def test_a_largest_below_the_smallest_is_flagged(settings: dict[str, Any]) -> None:
    job = make_plan(read_config(SuperformerConfig, settings)).job

    class Told:
        def several(self, forwards: list[Any]) -> list[Accuracy]:
            assert len(forwards) == 4
            return [Accuracy(top1, 90.0, 1.0) for top1 in (60.0, 50.0, 50.0, 40.0)]  # smallest, two random, largest

    found = job.health(Told())
    assert not found["healthy"]
    assert "UNHEALTHY" in found["summary"]


def test_checkpoints_are_apart_by_whole_epochs_of_some_work(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(read_config(SuperformerConfig, settings))
    loop = loop_module.Loop(plan, tmp_path, make_accelerator(plan.config), quiet=True)
    epochs, rest = divmod(loop.save_every, plan.order.steps_per_epoch)
    assert rest == 0
    work = plan.step_macs * plan.order.steps_per_epoch
    assert (epochs - 1) * work < 2**34 <= epochs * work
    monkeypatch.setattr(loop_module, "_SAVE_APART", 1)
    loop = loop_module.Loop(plan, tmp_path, make_accelerator(plan.config), quiet=True)
    assert loop.save_every == plan.order.steps_per_epoch


@pytest.fixture
def bad_steps(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Steps at whose first tries the loss is not finite."""
    bad: set[int] = set()
    original = loop_module.step_gradients

    def broken(*args: Any) -> torch.Tensor:
        loss = original(*args)
        return loss * math.nan if broken.step in bad else loss  # type: ignore[attr-defined]

    step_of = loop_module.Loop._step

    def counted(self: Any, batch: Any) -> bool:
        broken.step = self.progress.step  # type: ignore[attr-defined]
        return step_of(self, batch)

    monkeypatch.setattr(loop_module, "step_gradients", broken)
    monkeypatch.setattr(loop_module.Loop, "_step", counted)
    return bad


def test_a_bad_step_is_skipped(bad_steps: set[int], settings: dict[str, Any], tmp_path: Path) -> None:
    bad_steps |= {3, 4, 9}
    run = train(read_config(SuperformerConfig, settings), tmp_path / "run", quiet=True)
    skipped = [line for line in lines(run.folder) if line["event"] == "skipped"]
    assert [(line["step"], line["loss"]) for line in skipped] == [(3, "nan"), (4, "nan"), (9, "nan")]
    assert run.result["rollbacks"] == 0
    assert all(tensor.isfinite().all() for tensor in run.superformer().state_dict().values())


def test_a_bad_step_is_forgotten_by_batch_norms_too(settings: dict[str, Any], tmp_path: Path) -> None:
    """ViT-ResNAS' stem has some: what a step that is skipped has seen is not in their statistics."""
    settings |= {"space": "vit-resnas-nano", "space_options": {"img_size": 16, "patch": 4}, "private": []}
    plan = make_plan(read_config(SuperformerConfig, settings))
    loop = loop_module.Loop(plan, tmp_path, make_accelerator(plan.config), quiet=True)
    assert loop.statistics
    steps = loop.steps()
    next(steps)
    before = [tensor.clone() for tensor in loop.statistics]
    images, labels = next(loop.feed.batches(1, 2, 0))
    for poison, skipped in ((math.nan, True), (1.0, False)):
        assert loop._step([images * poison, labels])
        assert bool(loop.bad_in_a_row) == skipped
        same = [torch.equal(kept, tensor) for kept, tensor in zip(before, loop.statistics, strict=True)]
        assert all(same) if skipped else not any(same)
    steps.close()


def test_a_gradient_that_is_not_finite_is_no_step(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finite loss may have such a gradient; the weights must not see it."""
    calls = iter(range(1000))
    original = loop_module.step_gradients

    def broken(model: Any, *args: Any) -> torch.Tensor:
        loss = original(model, *args)
        if next(calls) in (2, 5):
            next(p for p in model.parameters() if p.grad is not None).grad.view(-1)[0] = math.inf
        return loss

    monkeypatch.setattr(loop_module, "step_gradients", broken)
    run = train(read_config(SuperformerConfig, settings | {"epochs": 1}), tmp_path / "run", quiet=True)
    skipped = [line for line in lines(run.folder) if line["event"] == "skipped"]
    assert [(line["step"], line["norm"]) for line in skipped] == [(2, "inf"), (5, "inf")]
    assert all(math.isfinite(float(line["loss"])) for line in skipped)
    assert all(tensor.isfinite().all() for tensor in run.superformer().state_dict().values())


@pytest.mark.parametrize("clip", [None, 0.01, 1e9])
def test_gradients_are_clipped_as_torch_clips_them(
    clip: float | None, settings: dict[str, Any], tmp_path: Path
) -> None:
    plan = make_plan(read_config(SuperformerConfig, settings | {"clip_grad": clip}))
    loop = loop_module.Loop(plan, tmp_path, make_accelerator(plan.config), quiet=True)
    generator = torch.Generator().manual_seed(0)
    for parameter in loop.parameters[::2]:
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    theirs = [parameter.grad.clone() for parameter in loop.parameters[::2]]
    for tensor, gradient in zip(copies := [torch.zeros_like(each) for each in theirs], theirs, strict=True):
        tensor.grad = gradient
    expected = torch.nn.utils.clip_grad_norm_(copies, math.inf if clip is None else clip)
    assert loop._clip() == pytest.approx(float(expected), rel=1e-6)
    for parameter, tensor in zip(loop.parameters[::2], copies, strict=True):
        torch.testing.assert_close(parameter.grad, tensor.grad, rtol=1e-4, atol=1e-7)


def test_large_sets_are_judged_as_small_ones_are(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """By worker processes, batch by batch, and several networks on the same batches."""
    plan = make_plan(read_config(SuperformerConfig, settings))
    model, search = plan.job.model, plan.data.search
    forwards = [partial(model, arch=arch) for arch in (model.space.largest, model.space.smallest)]
    given = (search.val, search, plan.job.img_size, 32, make_accelerator(plan.config))
    with torch.no_grad():
        small = Judge(*given)
        expected = [small(forward) for forward in forwards]
        monkeypatch.setattr(evaluate_module, "_MEMORY", 0)
        assert Judge(*given, workers=1).several(forwards) == small.several(forwards) == expected


def test_three_in_a_row_roll_back_and_then_give_up(
    bad_steps: set[int], settings: dict[str, Any], tmp_path: Path
) -> None:
    bad_steps |= {3, 4, 5}
    config = read_config(SuperformerConfig, settings | {"checkpoint_every": 2})
    with pytest.raises(FloatingPointError, match=r"3 steps in a row \(the last is 5\) after 2 rollback"):
        train(config, tmp_path / "run", quiet=True)
    events = [(line["event"], line["step"]) for line in lines(tmp_path / "run")[1:]]
    skipped = [("skipped", 3), ("skipped", 4), ("skipped", 5)]
    assert events == [*skipped, ("rollback", 2), *skipped, ("rollback", 2), *skipped]
    assert [line["lr_factor"] for line in lines(tmp_path / "run") if line["event"] == "rollback"] == [0.5, 0.25]
    bad_steps.clear()  # as if the cause were gone: what is there goes on from the last good checkpoint
    run = train(config, tmp_path / "run", quiet=True)
    assert run.result["rollbacks"] == 0
    assert run.result["steps"] == make_plan(config).steps


def test_after_a_rollback_the_rate_is_lower(bad_steps: set[int], settings: dict[str, Any], tmp_path: Path) -> None:
    config = read_config(SuperformerConfig, settings | {"most_rollbacks": 1, "checkpoint_every": 2})
    bad_steps |= {3, 4, 5}
    restore = loop_module.Loop._restore

    def cured(self: Any, cut_log: bool = True) -> None:
        restore(self, cut_log)
        if not cut_log:
            bad_steps.clear()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_module.Loop, "_restore", cured)
        run = train(config, tmp_path / "run", quiet=True)
    assert run.result["rollbacks"] == 1
    assert run.result["steps"] == make_plan(config).steps


def test_retraining_from_slices_and_fine_tuning(settings: dict[str, Any], tmp_path: Path) -> None:
    """A superformer's slices, a larger image, and other classes: what is carried over is carried over."""
    superformer = train(read_config(SuperformerConfig, settings | {"epochs": 1}), tmp_path / "superformer", quiet=True)
    arch = superformer.superformer().space.largest
    short = {
        "epochs": 1,
        "batch_size": 128,
        "device": "cpu",
        "lr": 1e-12,
        "min_lr": 0,
        "warmup_lr": 0,
        "weight_decay": 0,
    }
    sliced = {"arch": arch.to_json(), "superformer": str(superformer.folder), "val": 0.2}
    run = train(read_config(RetrainConfig, short | sliced), tmp_path / "sliced", quiet=True)
    expected = superformer.superformer().extract(arch).state_dict()
    for name, tensor in run.model().state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-6)
    assert run.arch == arch
    assert set(run.result) >= {"validation", "test"}
    larger = train(
        read_config(FinetuneConfig, short | {"start": str(run.folder), "img_size": 16, "val": 0.2}),
        tmp_path / "larger",
        quiet=True,
    )
    model = larger.model()
    assert model.img_size == (16, 16)
    torch.testing.assert_close(model.state_dict()["norm.weight"], expected["norm.weight"], rtol=0, atol=1e-6)
    assert model.pos_embed.shape[1] == 1 + 16
    with pytest.raises(ValueError, match="the images have other channels than the weights; got 3; allowed: in_chans=1"):
        make_plan(read_config(FinetuneConfig, short | {"start": str(run.folder), "in_chans": 3}))


def test_transfer_to_other_classes(settings: dict[str, Any], tmp_path: Path) -> None:
    from PIL import Image

    for name in ("cats", "dogs", "owls"):
        for i in range(20):
            place = tmp_path / "images" / name / f"{i}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.random.default_rng(i).integers(0, 255, (8, 8), dtype=np.uint8)).save(place)
    arch = spaces.load("vitas-nano", img_size=8, patch=4).smallest
    first = read_config(RetrainConfig, {"arch": arch.to_json(), "epochs": 1, "device": "cpu", "img_size": 8})
    run = train(first, tmp_path / "first", quiet=True)
    assert run.model().num_classes == 10
    moved = {"start": str(run.folder), "data": str(tmp_path / "images"), "in_chans": 1, "epochs": 1, "batch_size": 8}
    other = train(read_config(FinetuneConfig, moved | {"device": "cpu"}), tmp_path / "other", quiet=True)
    assert other.model().num_classes == 3
    torch.testing.assert_close(other.model().patch_embed.weight, run.model().patch_embed.weight, rtol=0.5, atol=0.01)


@pytest.mark.parametrize("family", ["s3-nano", "vit-resnas-nano", "vitas-twins-nano", "pit-nano", "autoformer-nano"])
def test_every_family_trains_with_everything_on(family: str, settings: dict[str, Any], tmp_path: Path) -> None:
    settings |= NOISY | {"space": family, "space_options": {"img_size": 16, "patch": 4}, "epochs": 1, "val": 0.5}
    settings |= {
        "token_labeling": "cutmix-mixup",
        "strategy": "sandwich",
        "mixed_precision": "bf16",
        "sharing": "ordinal",
    }
    config = read_config(SuperformerConfig, settings)
    run = train(config, tmp_path / "run", quiet=True)
    assert run.superformer().token_head
    arch = run.superformer().space.smallest
    sliced = {"arch": arch.to_json(), "superformer": str(run.folder), "epochs": 1, "device": "cpu", "val": 0.5}
    network = train(read_config(RetrainConfig, sliced), tmp_path / "network", quiet=True).model()
    assert network.token_head is None
    assert not any("token_head" in name for name in network.state_dict())


BAD = [
    ({"spaec": "s3"}, r"unknown key of a superformer configuration \(did you mean 'space'\?\)"),
    ({"lr": -1}, "lr of a superformer configuration: input should be greater than 0; got -1"),
    ({"recipe": "digits-superfromer"}, "unknown recipe"),
    ({"space": "vitas-nanno"}, r"unknown space \(did you mean 'vitas-nano'\?\)"),
    ({"space_options": {"img_size": 9}}, "an image side must fit patches of 4 pixels; got 9"),
    ({"num_classes": 7}, "the images of 'digits' are of 10 classes; got 7"),
    ({"batch_size": 4096}, "a step's images must be there"),
    ({"accumulate": 3}, "batch_size is shared by 1 process"),
    ({"strategy": "multi-architectural", "batch_size": 24}, "16 architectures share each process's part"),
    ({"strategy": "sandwhich"}, r"unknown strategy \(did you mean 'sandwich'"),
    ({"sharing": "cyclical"}, r"unknown sharing rule \(did you mean 'cyclic'"),
    ({"private": ["tokens"]}, "unknown private part"),
    ({"budget": "macs <= 1T"}, "no identity probability"),
    ({"auto_augment": "nonsense"}, "timm takes other augmentations"),
    ({"mixup": 0.8, "batch_size": 33}, "images are mixed in pairs"),
    ({"device": "tpu"}, "unknown device; got 'tpu'"),
    ({"device": "cuda"}, "this device is not here; got 'cuda'"),
    ({"mixed_precision": "fp16"}, "half precision"),
    ({"data": "no/such/folder"}, "no/such/folder"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=lambda value: str(value)[:40])
def test_bad_configurations_end_before_anything_starts(
    change: dict[str, Any], message: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    if torch.cuda.is_available() and ("cuda" in message or "half" in message):
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError, match=message) as refused:
        train(read_config(SuperformerConfig, settings | change), tmp_path / "run", quiet=True)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()
