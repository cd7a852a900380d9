"""Training: one loop for superformers, retraining, fine-tuning and transfer."""

from __future__ import annotations

from vitruvius.training.config import FinetuneConfig, RetrainConfig, SuperformerConfig, read_config
from vitruvius.training.loop import train
from vitruvius.training.run import Run, open_run

__all__ = ["FinetuneConfig", "RetrainConfig", "Run", "SuperformerConfig", "open_run", "read_config", "train"]
