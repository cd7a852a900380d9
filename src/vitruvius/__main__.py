"""`python -m vitruvius`, which torchrun starts in every process."""

from __future__ import annotations

from vitruvius.cli import main

main()
