"""A step's gradient is the sum written out by hand with extracted networks; what is sampled meets its budget."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vitruvius import Superformer, costs, spaces
from vitruvius.testing import fixed_batch
from vitruvius.training.config import SuperformerConfig
from vitruvius.training.losses import step_gradients
from vitruvius.training.processes import make_accelerator
from vitruvius.training.strategies import STRATEGIES, MultiArchitectural, Pass, Sampling, strategy_of
from vitruvius.training.token_labels import TokenLabels, soft_cross_entropy

IMAGES, CLASSES = 8, 5


def made(name: str, sharing: str, **options: object) -> tuple[Superformer, SuperformerConfig]:
    space = spaces.load(name, img_size=16, patch=4)
    config = SuperformerConfig(space=name, sharing=sharing, device="cpu", archs_per_step=4, **options)
    superformer = Superformer(
        space,
        sharing=sharing,
        private=config.private,
        num_classes=CLASSES,
        seed=0,
        token_head=config.token_labeling != "off",
    )
    return superformer.double().eval(), config  # without batch norms' statistics of a batch, parts and shares agree


def by_hand(superformer: Superformer, passes: list[Pass], batch: list[Tensor], config: SuperformerConfig) -> dict:
    """The sum over passes and their architectures of the extracted networks' gradients, put back by index."""
    found = {name: torch.zeros_like(p) for name, p in superformer.shared.items()}
    x, targets, *patch_targets = batch
    teacher: Tensor | None = None
    for each in passes:
        share = len(x) // len(each.archs)
        outputs = []
        for i, (arch, path) in enumerate(zip(each.archs, each.paths, strict=True)):
            here = slice(i * share, (i + 1) * share)
            model = superformer.extract(arch, path, each.side)
            goal = teacher[here] if each.taught else targets[here]
            if patch_targets:
                logits, patches = model(x[here], patch_logits=True)
                loss = soft_cross_entropy(logits, goal) + soft_cross_entropy(patches, patch_targets[0][here])
            else:
                logits = model(x[here])
                smoothing = 0.0 if goal.is_floating_point() else config.label_smoothing
                loss = F.cross_entropy(logits, goal, label_smoothing=smoothing)
            (loss * share / len(x)).backward()
            outputs.append(logits.detach())
            for name, part in superformer.slices_of(arch, path, each.side).items():
                whole = found[part.shared.replace(".", "/")]
                index = torch.arange(whole.numel()).reshape(whole.shape)
                whole.view(-1)[part.of(index).reshape(-1)] += model.get_parameter(name).grad.reshape(-1)
        if teacher is None:
            teacher = torch.cat(outputs).softmax(-1)
    return found


CASES = [
    ("vitas-nano", "cyclic", {"strategy": "single-path"}),
    ("vitas-nano", "bilateral", {"strategy": "single-path", "label_smoothing": 0.1}),
    ("s3-nano", "ordinal", {"strategy": "sandwich"}),
    ("s3-nano", "cyclic", {"strategy": "sandwich", "distill": True, "accumulate": 2}),
    ("autoformer-nano", "bilateral", {"strategy": "sandwich", "random_archs": 1}),
    ("vit-resnas-nano", "ordinal", {"strategy": "multi-architectural", "release_until": 0}),
    ("vit-resnas-nano", "ordinal", {"strategy": "multi-architectural", "execution": "sliced", "private": ()}),
    ("vit-resnas-nano", "ordinal", {"strategy": "multi-architectural", "execution": "masked", "private": ()}),
    ("vit-resnas-nano", "ordinal", {"strategy": "multi-architectural", "token_labeling": "cutmix", "private": ()}),
    ("autoformer-nano", "cyclic", {"strategy": "multi-architectural", "accumulate": 2, "private": ()}),
]


@pytest.mark.parametrize(("name", "sharing", "options"), CASES)
def test_the_gradient_of_a_step_is_the_sum_by_hand(name: str, sharing: str, options: dict) -> None:
    superformer, config = made(name, sharing, **options)
    x = fixed_batch(superformer, IMAGES)
    labels = torch.arange(IMAGES) % CLASSES
    batch = [x, labels]
    if config.token_labeling != "off":
        batch = [part.double() for part in TokenLabels(num_classes=CLASSES, grid=(1, 1))(x, labels, (3,))]
        grid = superformer(x, superformer.space.largest, patch_logits=True)[1].shape[1]
        batch[2] = batch[2][:, :1].expand(-1, grid, -1)
    accelerator = make_accelerator(config)
    strategy = strategy_of(config, superformer, steps=100)
    for step in (0, 60):
        superformer.zero_grad(set_to_none=True)
        passes = strategy.passes(step)
        step_gradients(superformer, passes, batch, config, accelerator)
        # Parts of a batch have every n-th image; so have the shares by hand, taken part by part.
        expected = None
        for part in range(config.accumulate):
            one = by_hand(superformer, passes, [tensor[part :: config.accumulate] for tensor in batch], config)
            scaled = {key: value / config.accumulate for key, value in one.items()}
            expected = scaled if expected is None else {key: expected[key] + scaled[key] for key in expected}
        for key, parameter in superformer.shared.items():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(gradient, expected[key], rtol=1e-8, atol=1e-10, msg=lambda m, k=key: f"{k}: {m}")


def test_a_step_of_each_strategy_is_what_its_paper_says() -> None:
    superformer, config = made("vitas-nano", "bilateral", strategy="sandwich")
    passes = strategy_of(config, superformer, 100).passes(5)
    archs = [each.archs[0] for each in passes]
    assert [each.side for each in passes] == [0, 1] * 4
    assert archs[0] == superformer.space.largest
    assert archs[2] == superformer.space.smallest
    assert len(set(archs[4:])) == 2
    assert passes == strategy_of(config, superformer, 100).passes(5)  # stateless
    assert passes[4:] != strategy_of(config, superformer, 100).passes(6)[4:]
    assert set(STRATEGIES) == {"single-path", "sandwich", "multi-architectural"}
    with pytest.raises(ValueError, match=r"unknown strategy \(did you mean 'sandwich'\?\)"):
        strategy_of(config.model_copy(update={"strategy": "sandwitch"}), superformer, 100)


def test_widths_and_depths_are_released_little_by_little() -> None:
    """Only the largest at first, everything after the given steps, and never less than the step before."""
    space = spaces.load("vit-resnas-tiny")
    strategy = MultiArchitectural(Sampling(space=space, seed=0), 1, archs_per_step=16, release_steps=40)
    assert set(strategy.passes(0)[0].archs) == {space.largest}
    assert strategy.least(40) is None
    before = space.layout.counts - 1
    for step in range(40):
        least = strategy.least(step)
        assert (least <= before).all()
        for arch in strategy.passes(step)[0].archs:
            assert (space.encode(arch) >= 0).all()
        before = least
    released = {gene.name for gene, low in zip(space.layout.genes, before, strict=True) if low < len(gene.choices) - 1}
    assert "stage1.dim" in released
    depths = {len(stage.blocks) for arch in strategy.passes(39)[0].archs for stage in arch.stages}
    assert len(depths) > 1
    skips = [i for i, gene in enumerate(space.layout.genes) if gene.name.endswith(".on")]
    assert any(0 < sum(strategy.least(step)[skips] == 0) < len(skips) for step in range(40))  # not all at once


@pytest.mark.parametrize(
    ("name", "budget", "target"),
    [
        ("vitas-v1", "macs = 1.3G +- 1%", 1.3e9),
        ("vitas-v1", "macs <= 0.9G", 0.9e9),
        ("vitas-deit-small", "macs <= 1.4G", 1.4e9),  # identity shifting: the number of identities
        ("vitas-twins-small", "macs <= 1.4G", 1.4e9),
    ],
)
def test_budget_aligned_sampling_meets_its_budget(name: str, budget: str, target: float) -> None:
    space = spaces.load(name)
    identity = space.identity_for(budget)
    sampled = space.sample_vectors(np.random.default_rng(1), 10_000, identity)
    assert abs(costs.macs(sampled, space=space).mean() / target - 1) < 0.01
    assert space.mean_cost("macs", identity) == pytest.approx(target, rel=1e-6)


@pytest.mark.parametrize(
    "name", ["vitas-v1", "vitas-deit-small", "vitas-twins-small", "vit-resnas-tiny", "pit-s", "s3"]
)
@pytest.mark.parametrize("metric", ["macs", "params"])
@pytest.mark.parametrize("identity", [None, 0.3])
def test_mean_costs_are_those_of_samples(name: str, metric: str, identity: float | None) -> None:
    space = spaces.load(name)
    sampled = getattr(costs.cost(space.sample_vectors(np.random.default_rng(2), 4000, identity), space=space), metric)
    error = sampled.std() / len(sampled) ** 0.5
    assert abs(sampled.mean() - space.mean_cost(metric, identity)) < 4 * error


def test_budgets_that_no_identity_probability_meets_are_refused() -> None:
    with pytest.raises(ValueError, match="no identity probability of space 'vitas-v1' has this mean macs"):
        spaces.load("vitas-v1").identity_for("macs <= 9G")
    with pytest.raises(ValueError, match="the mean of one metric"):
        spaces.load("vitas-v1").identity_for("macs <= 1G, params <= 5M")
    with pytest.raises(ValueError, match="needs an upper end"):
        spaces.load("vitas-v1").identity_for("macs >= 1G")
    with pytest.raises(ValueError, match="layers that may be skipped"):
        spaces.load("vitas-v1-block").identity_for("macs <= 1G")


def test_a_strategys_samples_keep_to_the_budget() -> None:
    superformer, config = made("vitas-nano", "cyclic", budget="macs = 0.8M +- 1%")
    strategy = strategy_of(config, superformer, 100)
    counting = {"img_size": 16, "num_classes": CLASSES}
    drawn = [costs.macs(strategy.passes(step)[0].archs[0], **counting) for step in range(1500)]
    assert abs(np.mean(drawn) - 0.8e6) < 4 * np.std(drawn) / len(drawn) ** 0.5
