"""Weights from a file, and nothing but weights: no code in a file is ever run."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError

from safetensors import SafetensorError
from timm.models import load_state_dict
from torch import Tensor

from vitruvius.arch import refuse

__all__ = ["read_weights"]

_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".tar")


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file or of a PyTorch checkpoint (its "model" or "state_dict"), by name.

    A PyTorch checkpoint is read by torch's restricted unpickler (`weights_only`), which makes tensors, containers,
    numbers and texts, and refuses everything else that a pickle may ask for.
    """
    path = Path(path)
    if not path.is_file() or path.suffix not in _SUFFIXES:
        refuse("weights are a file", str(path), ", ".join(_SUFFIXES))
    try:
        found = load_state_dict(str(path), use_ema=False, weights_only=True)
    except (SafetensorError, UnpicklingError, RuntimeError, OSError, EOFError, ValueError, KeyError) as error:
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        refuse(
            f"weights cannot be read ({why})", str(path), "a whole safetensors file, or a checkpoint of tensors only"
        )
    tensors = {name: tensor for name, tensor in found.items() if isinstance(tensor, Tensor)}
    if not tensors:
        refuse("the file has no tensors under names", str(path), "the weights of one network")
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
