"""Image files to uint8 pixels, whatever their mode."""

from __future__ import annotations

from pathlib import Path
from typing import IO, NoReturn

import numpy as np
from PIL import Image

from vitruvius.arch import refuse

READ_ERRORS = (OSError, SyntaxError, ValueError, EOFError, IndexError, MemoryError, Image.DecompressionBombError)
"""What PIL raises on files that are broken, or are no images at all."""

_DEEP = ("I", "I;16", "I;16L", "I;16B", "I;16N")


def check_channels(in_chans: int | None) -> None:
    if in_chans not in (None, 1, 3):
        refuse("in_chans is the number of channels that images are read with", in_chans, "1 (grey), 3 (RGB), or None")


def to_pixels(image: Image.Image, in_chans: int) -> np.ndarray:
    """(H, W, in_chans) uint8. Transparency is laid on white; 16-bit grey keeps its upper eight bits."""
    if image.mode in _DEEP:
        image = Image.fromarray(np.clip(np.asarray(image).astype(np.int64) >> 8, 0, 255).astype(np.uint8))
    elif "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    elif image.mode == "F":
        raise ValueError("32-bit float pixels have no fixed range")
    pixels = np.asarray(image.convert("L" if in_chans == 1 else "RGB"))
    return pixels[:, :, None] if in_chans == 1 else pixels


def read_image(file: str | Path | IO[bytes], in_chans: int, name: object) -> np.ndarray:
    """The pixels of a file, or one line that names it."""
    try:
        with Image.open(file) as image:
            return to_pixels(image, in_chans)
    except READ_ERRORS as error:
        refuse_image(name, error)


def refuse_image(name: object, error: BaseException, others: int = 0) -> NoReturn:
    why = "no image file" if isinstance(error, Image.UnidentifiedImageError) else str(error) or type(error).__name__
    more = f", nor {others} more of this source" if others else ""
    refuse(f"an image cannot be read ({why}){more}", str(name), "an image that PIL opens; remove the file, or mend it")


def to_image(pixels: np.ndarray) -> Image.Image:
    """(H, W, 1 or 3) uint8 as an image."""
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
