"""What the tests of training share: a short run on the digits that uses everything random there is."""

from __future__ import annotations

from typing import Any

import pytest

SUPERFORMER: dict[str, Any] = {
    "space": "vitas-nano",
    "space_options": {"img_size": 8, "patch": 4},
    "device": "cpu",
    "epochs": 2,
    "batch_size": 128,
    "lr": 2e-3,
    "warmup_epochs": 0.5,
    "val": 0.2,
}
NOISY: dict[str, Any] = {
    "drop_path_rate": 0.1,
    "drop_rate": 0.1,
    "mixup": 0.8,
    "cutmix": 1.0,
    "label_smoothing": 0.1,
    "hflip": 0.5,
    "ema_decay": 0.9,
    "clip_grad": 1.0,
    "accumulate": 2,
    "workers": 0,
}


@pytest.fixture
def settings() -> dict[str, Any]:
    return dict(SUPERFORMER)
