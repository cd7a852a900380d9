"""Which copy of a parameter a network uses: parts that are private to a choice, and parts that must be.

What may be private is asked for by name:

- "class_token": one class token a patch size (ViTAS v1 and v2);
- "qk": query and key projections of their own for every number of heads, with v shared (v1, Eq. 7-8);
- "v": value projections likewise; ("qk", "v") is the ablation's q-k-v private, () its nothing private;
- "mixer": q, k, v and output projections of their own for every kind of mixer (windows, shifted or not, are one kind).

What must be private, because no rule could share it with a meaning: patch convolutions a patch size (kernels of 14 and
of 32 pixels see other scales), position embeddings a token grid, sub-sampling convolutions a ratio. Relative bias
tables are shared among windows by offset: a smaller window reads the middle of the largest window's table, where the
same offsets lie.
"""

from __future__ import annotations

from collections.abc import Collection

from vitruvius.arch import Block, Patch, require_choice

__all__ = ["PARTS", "check_parts", "copy_key"]

PARTS = ("class_token", "qk", "v", "mixer")
_KINDS = {"window": "window", "shifted": "window"}


def check_parts(private: Collection[str]) -> tuple[str, ...]:
    """The parts in their own order, once they are known."""
    for part in private:
        require_choice("private part", part, PARTS)
    return tuple(part for part in PARTS if part in private)


def copy_key(name: str, follows: str | None, block: Block | None, patch: Patch, private: Collection[str]) -> str:
    """What is appended to a parameter's name to name the copy: "@heads=6", say, or nothing.

    name: the parameter's own, inside its module ("q.weight"); block: None outside blocks.
    """
    choices: dict[str, object] = {}
    if follows == "patch" or (follows == "patch if private" and "class_token" in private):
        choices["patch"] = patch.size
    if block is not None:
        if follows == "reduction":
            choices["reduction"] = block.reduction
        part = {"q": "qk", "k": "qk", "v": "v", "proj": "proj"}.get(name.split(".")[0])
        if part in private:
            choices["heads"] = block.heads
        if part and "mixer" in private:
            choices["mixer"] = _KINDS.get(block.mixer, block.mixer)
    return "".join(f"@{choice}={value}" for choice, value in choices.items())
