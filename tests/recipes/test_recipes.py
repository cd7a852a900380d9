"""The records against the papers: every number below is written from the paper's text, not from the record.

Where a record says that it takes another's numbers (S3's retraining, transfers), it is held against that one's paper.
"""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from vitruvius import recipes, spaces, zoo
from vitruvius.cli import main
from vitruvius.superformer import RULES
from vitruvius.superformer.private import check_parts
from vitruvius.training.config import FinetuneConfig, RetrainConfig, Settings, SuperformerConfig, read_config

CONFIGS: dict[str, tuple[type[Settings], dict[str, Any]]] = {
    "superformer": (SuperformerConfig, {"space": "vitas-nano"}),
    "retrain": (RetrainConfig, {"arch": "deit-tiny"}),
    "finetune": (FinetuneConfig, {"start": "runs/one"}),
}
TRAINING = [name for kind in ("superformer", "retrain", "finetune") for name in recipes.names(kind)]

STRONG = {  # DeiT, Table 9, but for repeated augmentation
    "auto_augment": "rand-m9-mstd0.5-inc1",
    "mixup": 0.8,
    "cutmix": 1.0,
    "erasing": 0.25,
    "label_smoothing": 0.1,
}
DEIT = {
    **STRONG,
    "epochs": 300,
    "batch_size": 1024,
    "optimizer": "adamw",
    "schedule": "cosine",
    "weight_decay": 0.05,
    "warmup_epochs": 5,
    "drop_path_rate": 0.1,
    "repeated_augmentation": 3,
}
NO_AUGMENTATION = {
    "auto_augment": None,
    "mixup": 0.0,
    "cutmix": 0.0,
    "color_jitter": 0.0,
    "erasing": 0.0,
    "drop_path_rate": 0.0,
    "repeated_augmentation": 1,
}
V1_SUPERFORMER = {  # Table 4, and the ticks that Table 3 has left of CutMix and erasing
    **NO_AUGMENTATION,
    "epochs": 300,
    "batch_size": 1024,
    "optimizer": "adamw",
    "schedule": "cosine",
    "weight_decay": 0.05,
    "warmup_epochs": 5,
    "cutmix": 1.0,
    "erasing": 0.25,
    "strategy": "single-path",
    "private": ("class_token", "qk"),
    "img_size": 224,
    "val": 50,  # 50K of 1000 classes
}
V2_SUPERFORMER = {  # Appendix A.1; weight decay is off in the last row of Table 4
    **NO_AUGMENTATION,
    "epochs": 300,
    "batch_size": 1024,
    "optimizer": "adamw",
    "schedule": "cosine",
    "min_lr": 0.0,
    "warmup_epochs": 5,
    "weight_decay": 0.0,
    "strategy": "single-path",
    "sharing": "cyclic",
    "private": ("class_token",),
    "val": 50,
}
V2_RETRAIN = {**DEIT, "repeated_augmentation": 1, "min_lr": 0.0, "clip_grad": None}
V2_TWINS = {**V2_RETRAIN, "clip_grad": 5.0}
S3 = {  # Section 4.1
    "epochs": 300,
    "batch_size": 1024,
    "optimizer": "adamw",
    "schedule": "cosine",
    "min_lr": 1e-5,
    "warmup_epochs": 20,
    "weight_decay": 0.05,
    "label_smoothing": 0.1,
    "drop_path_rate": 0.2,
}
TOKEN_LABELS = {**DEIT, "repeated_augmentation": 1, "img_size": 224, "token_labeling": "cutmix-mixup"}
RESNAS_SUPERFORMER = {  # Section 3.1, Appendix C
    **TOKEN_LABELS,
    "epochs": 120,
    "strategy": "multi-architectural",
    "archs_per_step": 16,
    "release_until": 0.25,
    "val": 25,
}
RESNAS_FINETUNE = {
    **TOKEN_LABELS,
    "epochs": 30,
    "batch_size": 512,
    "weight_decay": 1e-8,
    "drop_path_rate": 0.75,
}
TF_TAS = {**DEIT, "batch_size": 256, "min_lr": 1e-5, "img_size": 224}  # Section 4.1
TRANSFER = {  # an author's answer
    **DEIT,
    "epochs": 1000,
    "batch_size": 768,
    "optimizer": "sgd",
    "weight_decay": 1e-4,
    "erasing": 0.0,
    "drop_path_rate": 0.0,
}

PRINTED: dict[str, tuple[float, dict[str, Any]]] = {  # the rate of a step of the printed batch, and the rest
    "deit-retrain": (1e-3, {**DEIT, "lr": 5e-4, "lr_reference_batch": 512}),
    "deit-finetune": (5e-6, {"epochs": 30, "batch_size": 512, "weight_decay": 1e-8, "min_lr": 5e-6, "img_size": 384}),
    "deit-transfer": (0.01, TRANSFER),
    "autoformer-superformer": (1e-3, {**DEIT, "epochs": 500, "warmup_epochs": 20, "strategy": "single-path"}),
    "autoformer-retrain": (1e-3, TF_TAS),
    "tf-tas-retrain": (1e-3, TF_TAS),
    "tf-tas-transfer": (0.01, {**TRANSFER, "img_size": 384}),
    "vitas-v1-superformer-0.9g": (1e-3, {**V1_SUPERFORMER, "budget": "macs: 0.9G"}),
    "vitas-v1-superformer-1.0g": (1e-3, {**V1_SUPERFORMER, "budget": "macs: 1.0G"}),
    "vitas-v1-superformer-1.3g": (1e-3, {**V1_SUPERFORMER, "budget": "macs: 1.3G"}),
    "vitas-v1-superformer-1.6g": (1e-3, {**V1_SUPERFORMER, "budget": "macs: 1.6G"}),
    "vitas-v1-retrain-from-1.3g": (1e-3, DEIT),
    "vitas-v1-retrain-below-1.3g": (1e-3, {**DEIT, "cutmix": 0.0}),
    "vitas-v1-transfer": (0.01, {**TRANSFER, "epochs": 150}),
    "vitas-v2-superformer": (1e-3, V2_SUPERFORMER),
    "vitas-v2-deit-retrain": (1e-3, V2_RETRAIN),
    "vitas-v2-twins-retrain-tiny": (1e-3, {**V2_TWINS, "drop_path_rate": 0.1}),
    "vitas-v2-twins-retrain-small": (1e-3, {**V2_TWINS, "drop_path_rate": 0.2}),
    "vitas-v2-twins-retrain-base": (1e-3, {**V2_TWINS, "drop_path_rate": 0.3}),
    "vitas-v2-twins-retrain-large": (1e-3, {**V2_TWINS, "drop_path_rate": 0.5}),
    "s3-superformer": (1e-3, {**S3, "strategy": "sandwich", "random_archs": 2, "distill": False}),
    "s3-retrain": (1e-3, S3),
    "s3-finetune-384": (
        1e-5,
        {"epochs": 10, "optimizer": "adamw", "schedule": "constant", "weight_decay": 1e-8, "img_size": 384},
    ),
    "vit-resnas-superformer-tiny": (1e-3, {**RESNAS_SUPERFORMER, "drop_path_rate": 0.2}),
    "vit-resnas-superformer-small-medium": (1e-3, {**RESNAS_SUPERFORMER, "drop_path_rate": 0.3}),
    "vit-resnas-retrain-res-tiny": (1e-3, {**TOKEN_LABELS, "drop_path_rate": 0.2}),
    "vit-resnas-retrain-res-tiny-plain": (1e-3, {**TOKEN_LABELS, "token_labeling": "off", "drop_path_rate": 0.1}),
    "vit-resnas-retrain-tiny": (1e-3, {**TOKEN_LABELS, "drop_path_rate": 0.2}),
    "vit-resnas-retrain-small": (1e-3, {**TOKEN_LABELS, "drop_path_rate": 0.3}),
    "vit-resnas-retrain-medium": (1e-3, {**TOKEN_LABELS, "drop_path_rate": 0.4}),
    "vit-resnas-finetune-280": (5e-6, {**RESNAS_FINETUNE, "img_size": 280}),
    "vit-resnas-finetune-336": (5e-6, {**RESNAS_FINETUNE, "img_size": 336}),
    "vit-resnas-finetune-392": (5e-6, {**RESNAS_FINETUNE, "img_size": 392}),
}


def config_of(name: str, **given: Any) -> Settings:
    """The configuration of a recipe with nothing but what every configuration must say."""
    kind, needed = CONFIGS[recipes.load(name).kind]
    return read_config(kind, {"recipe": name, **needed, **given})


def rate(config: Settings) -> float:
    return config.lr * config.batch_size / (config.lr_reference_batch or config.batch_size)


@pytest.mark.parametrize("name", TRAINING)
def test_every_recipe_is_a_whole_configuration(name: str) -> None:
    recipe, config = recipes.load(name), config_of(name)
    for key, value in recipe.settings.items():
        got = getattr(config, key)
        assert key in CONFIGS[recipe.kind][1] or (list(got) if isinstance(got, tuple) else got) == value
    assert recipe.sources.keys() == recipe.settings.keys()
    assert set(recipe.sources.values()) <= {"paper", "filled"} | set(recipes.names())
    if isinstance(config, SuperformerConfig):
        assert config.sharing in RULES
        assert check_parts(config.private) == config.private


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_says_what_it_is(name: str) -> None:
    recipe = recipes.load(name)
    for text in (recipe.paper, recipe.where, recipe.cost, recipe.notes):
        assert isinstance(text, str)
        assert text.strip() == text != ""
    year, month = recipe.date.split("-")
    assert 2020 <= int(year) <= 2026
    assert 1 <= int(month) <= 12


def test_a_file_is_named_as_its_record() -> None:
    files = [file.name for file in (resources.files(recipes) / "records").iterdir() if file.name.endswith(".yaml")]
    for stem in (name.removesuffix(".yaml") for name in files):
        assert stem in recipes.names() or any(name.startswith(f"{stem}-") for name in recipes.names())


def test_all_published_training_is_checked_here() -> None:
    assert set(PRINTED) == {name for name in TRAINING if recipes.load(name).paper != "Vitruvius"}


@pytest.mark.parametrize("name", PRINTED)
def test_the_papers_numbers(name: str) -> None:
    config, (printed_rate, printed) = config_of(name), PRINTED[name]
    assert rate(config) == pytest.approx(printed_rate, rel=1e-12)
    assert {key: getattr(config, key) for key in printed} == printed


def test_printed_numbers_are_said_to_be_printed_and_others_not() -> None:
    """One example of each source, the delicate ones."""
    v1, v2 = recipes.load("vitas-v1-superformer-1.3g"), recipes.load("vitas-v2-deit-retrain")
    assert v1.sources["cutmix"] == v1.sources["budget"] == "paper"
    assert v1.sources["label_smoothing"] == v1.sources["sharing"] == "filled"
    assert v2.sources["min_lr"] == "paper"
    assert v2.sources["lr"] == "deit-retrain"  # the paper's 0.05 is not believed
    assert "0.05" in v2.notes
    s3, twins = recipes.load("s3-finetune-384"), recipes.load("vitas-v2-twins-retrain-large")
    assert s3.sources["schedule"] == "paper"
    assert s3.sources["batch_size"] == "filled"
    assert s3.sources["mixup"] == "deit-retrain"  # by way of deit-finetune
    assert twins.sources["drop_path_rate"] == twins.sources["clip_grad"] == "paper"
    assert twins.sources["epochs"] == "vitas-v2-deit-retrain"
    assert twins.sources["lr"] == "deit-retrain"


def test_the_docs_have_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["vitruvius", "recipes"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.strip() in (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()


def test_costs_are_the_papers() -> None:
    assert "24 GPU days" in recipes.load("autoformer-superformer").cost
    assert "32 GPU days" in recipes.load("vitas-v1-superformer-1.3g").cost
    assert all(hours in recipes.load("vit-resnas-retrain-tiny").cost for hours in ("32 hours", "34.5", "41.6", "45"))
    assert all(hours in recipes.load("vit-resnas-superformer-tiny").cost for hours in ("16.7 hours", "21 hours"))
    assert "16 V100 of 32 GB" in recipes.load("s3-superformer").cost


def test_variants_have_no_bare_recipe() -> None:
    assert "vitas-v2-twins-retrain" not in recipes.names()
    with pytest.raises(ValueError, match=r"unknown recipe .*vitas-v2-twins-retrain-tiny"):
        recipes.load("vitas-v2-twins-retrain")


@pytest.mark.parametrize("name", ["s3-superformr", "S3-superformer", "", "deit"])
def test_unknown_names_are_one_line(name: str) -> None:
    with pytest.raises(ValueError, match="unknown recipe") as refused:
        recipes.load(name)
    assert "\n" not in str(refused.value)
    assert "s3-superformer" in str(refused.value)  # it is listed
    with pytest.raises(ValueError, match="unknown recipe"):
        read_config(SuperformerConfig, {"recipe": name, "space": "s3"})


def test_misspelt_names_are_guessed() -> None:
    with pytest.raises(ValueError, match="did you mean 's3-superformer'"):
        recipes.load("s3-superformr")


@pytest.mark.parametrize("name", TRAINING)
def test_recipes_of_another_kind_are_refused(name: str) -> None:
    right = recipes.load(name).kind
    assert recipes.load(name, right).name == name
    for kind, (config, needed) in CONFIGS.items():
        if kind != right:
            with pytest.raises(
                ValueError, match=f"of another kind; got '{right}'; allowed: a {kind} recipe"
            ) as refused:
                read_config(config, {"recipe": name, **needed})
            assert "\n" not in str(refused.value)


def test_what_is_given_beside_a_recipe_wins() -> None:
    config = config_of("vitas-v1-superformer-1.3g", batch_size=256, private=[])
    assert isinstance(config, SuperformerConfig)
    assert rate(config) == pytest.approx(2.5e-4)  # scaled to the batch
    assert config.private == ()
    assert config.cutmix == 1.0


def test_superformers_of_ours_are_weakly_augmented() -> None:
    ours = [name for name in recipes.names("superformer") if recipes.load(name).paper == "Vitruvius"]
    assert ours
    for config in (read_config(SuperformerConfig, {"space": "vitas-nano"}), *map(config_of, ours)):
        assert {key: getattr(config, key) for key in NO_AUGMENTATION} == NO_AUGMENTATION
        assert config.label_smoothing == 0


@pytest.mark.parametrize("data", ["digits", "fashion-mnist"])
def test_recipes_of_ours_need_no_more_than_their_name(data: str) -> None:
    config = read_config(SuperformerConfig, {"recipe": f"{data}-superformer"})
    space = spaces.load(config.space, **config.space_options)
    assert space.img_size == {"digits": 8, "fashion-mnist": 28}[data]
    for other in ("autoformer-nano", "s3-nano", "vitas-twins-nano", "vit-resnas-nano", "pit-nano"):
        assert spaces.load(other, **config.space_options).img_size == space.img_size


def test_vit_resnas_is_tuned_at_the_resolutions_of_its_table() -> None:
    sizes = [recipes.load(name).settings["img_size"] for name in recipes.names("finetune") if "resnas" in name]
    assert sorted(sizes) == sorted(size for size in zoo.entry("vit-resnas-medium").printed if size != 224)
    assert all(size % 56 == 0 for size in sizes)
