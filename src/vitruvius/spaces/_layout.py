"""How a space's choices lie in an integer vector: one column for every dimension in which there is a choice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from vitruvius.arrays import IntArray
from vitruvius.spaces._declaration import Choices, Declaration

NET = -1


@dataclass(frozen=True, slots=True)
class Gene:
    """One column: the index of a choice."""

    parameter: str
    """A block parameter, or "patch", "dim", "depth", "on" (1 where a skippable layer is a block)."""
    choices: Choices
    stage: int = NET
    layer: int = NET

    @property
    def name(self) -> str:
        where = "" if self.stage == NET else f"stage{self.stage + 1}."
        return where + ("" if self.layer == NET else f"block{self.layer + 1}.") + self.parameter


class Layout:
    """The columns of a declaration's vectors."""

    def __init__(self, declaration: Declaration) -> None:
        genes = [Gene("patch", declaration.patch)]
        genes += [Gene(name, choices) for name, choices in declaration.net.items()]
        for s, stage in enumerate(declaration.stages):
            genes += [Gene("dim", stage.dim, s)] if stage.dim else []
            genes += [Gene("depth", stage.depth, s)]
            genes += [Gene(name, choices, s) for name, choices in stage.stage.items()]
            for layer in range(stage.layers):
                if layer in stage.skips:
                    genes.append(Gene("on", (0, 1), s, layer))
                genes += [Gene(name, choices, s, layer) for name, choices in stage.block.items()]
        self.genes = tuple(gene for gene in genes if len(gene.choices) > 1)
        self._stages = declaration.stages
        self._column = {(gene.stage, gene.layer, gene.parameter): i for i, gene in enumerate(self.genes)}

    @cached_property
    def counts(self) -> IntArray:
        """(G,): how many choices each column has."""
        return np.array([len(gene.choices) for gene in self.genes], dtype=np.int64)

    def column(self, parameter: str, stage: int = NET, layer: int = NET) -> int | None:
        """The column, or None where there is no choice."""
        return self._column.get((stage, layer, parameter))

    def index(self, vectors: IntArray, parameter: str, stage: int = NET) -> IntArray:
        """(n,): the chosen index of a network's or a stage's dimension."""
        column = self.column(parameter, stage)
        return np.zeros(len(vectors), dtype=np.int64) if column is None else vectors[:, column]

    def active(self, vectors: IntArray, stage: int) -> NDArray[np.bool_]:
        """(n, L): which layers of a stage are blocks."""
        space = self._stages[stage]
        if space.identity == "shifted":
            depth = np.array(space.depth)[self.index(vectors, "depth", stage)]
            return np.asarray(np.arange(space.layers)[None, :] < depth[:, None])
        active = np.ones((len(vectors), space.layers), dtype=bool)
        for layer in space.skips:
            active[:, layer] = vectors[:, self._column[stage, layer, "on"]] == 1
        return active

    @cached_property
    def _layer_columns(self) -> tuple[IntArray, tuple[IntArray, ...]]:
        """The columns of block parameters, and for each stage which layer each belongs to (-1: another stage's)."""
        columns = [i for i, gene in enumerate(self.genes) if gene.layer != NET and gene.parameter != "on"]
        owners = tuple(
            np.array([self.genes[i].layer if self.genes[i].stage == s else -1 for i in columns], dtype=np.int64)
            for s in range(len(self._stages))
        )
        return np.array(columns, dtype=np.int64), owners

    def used(self, vectors: IntArray) -> NDArray[np.bool_]:
        """(n, G): which columns say something about the network; those of absent blocks do not."""
        used = np.ones(vectors.shape, dtype=bool)
        columns, owners = self._layer_columns
        for stage, owner in enumerate(owners):
            if (owner >= 0).any():
                used[:, columns[owner >= 0]] = self.active(vectors, stage)[:, owner[owner >= 0]]
        return used

    def combinations(self, stage: int) -> list[dict[int, int]]:
        """Every combination of the choices made once for the network (NET) or for a stage, depth aside, by column."""
        columns = [
            i
            for i, gene in enumerate(self.genes)
            if gene.stage == stage and gene.layer == NET and gene.parameter != "depth"
        ]
        counts = (range(int(self.counts[column])) for column in columns)
        return [dict(zip(columns, values, strict=True)) for values in product(*counts)]

    def block_options(self, stage: int) -> list[dict[str, int]]:
        """Every combination of the choices made for each block of a stage."""
        block = self._stages[stage].block
        varying = {name: range(len(choices)) for name, choices in block.items() if len(choices) > 1}
        return [dict(zip(varying, values, strict=True)) for values in product(*varying.values())]

    def full_rows(self, stage: int) -> IntArray:
        """One vector for every combination of the network's and the stage's choices, the stage full of blocks."""
        configs, states = self.combinations(NET), self.combinations(stage)
        rows = np.zeros((len(configs), len(states), len(self.genes)), dtype=np.int64)
        for index, config in enumerate(configs):
            for column, value in config.items():
                rows[index, :, column] = value
        for index, state in enumerate(states):
            for column, value in state.items():
                rows[:, index, column] = value
        flat = rows.reshape(len(configs) * len(states), len(self.genes))
        if (depth := self.column("depth", stage)) is not None:
            flat[:, depth] = self.counts[depth] - 1
        for layer in self._stages[stage].skips:
            flat[:, self._column[stage, layer, "on"]] = 1
        return flat

    def fill(self, rows: IntArray, stage: int, option: dict[str, int]) -> IntArray:
        """The rows with one block option in every layer of a stage."""
        filled = rows.copy()
        for parameter, value in option.items():
            for layer in range(self._stages[stage].layers):
                filled[:, self._column[stage, layer, parameter]] = value
        return filled

    def canonical(self, vectors: IntArray) -> IntArray:
        """The same networks with zeros in unused columns, so that equal paths are equal vectors."""
        return np.where(self.used(vectors), vectors, 0)
