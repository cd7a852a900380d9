"""Images: sources, the three-way split, augmentation that is a function of keys, batches for evaluation."""

from __future__ import annotations

from vitruvius.data._augment import Augment
from vitruvius.data._evaluate import default_crop_pct, eval_batches, stream_batches
from vitruvius.data._images import DatasetImages, DecodedImages, FileImages, Images, MemoryImages
from vitruvius.data._keys import hashes
from vitruvius.data._load import Data, SearchData, load
from vitruvius.data._mix import Mix

__all__ = [
    "Augment",
    "Data",
    "DatasetImages",
    "DecodedImages",
    "FileImages",
    "Images",
    "MemoryImages",
    "Mix",
    "SearchData",
    "default_crop_pct",
    "eval_batches",
    "hashes",
    "load",
    "stream_batches",
]
