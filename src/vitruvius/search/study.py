"""The record of a search: an Optuna study, a journal file by default, or any database that Optuna knows.

Every trial is written at once and whole, as Optuna's own: parameters with their distributions, values, states. So
optuna-dashboard and optuna.visualization read it as they read any other. The rest is in user attributes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from vitruvius.arch import Arch, refuse
from vitruvius.files import replace_file
from vitruvius.search._trial import Objective, Trial
from vitruvius.spaces import Space

__all__ = ["Study", "open_storage"]

_RECORD = "vitruvius"
_STALE = 0.5
"""Seconds after which a lock that nobody moves was left behind by a process that is gone."""


class Study:
    """The trials of one search, in a storage that may have others.

    record: what decides the search (space, budget, split, seed, settings), as plain data with names as keys. A study
        that was begun with another one is refused. Without, a study that is there is opened, to be read.
    """

    def __init__(
        self,
        storage: str | Path | BaseStorage,
        name: str,
        *,
        space: Space,
        objectives: Sequence[Objective],
        record: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self.space, self.objectives = name, space, tuple(objectives)
        self._distributions = {gene.name: CategoricalDistribution(gene.choices) for gene in space.layout.genes}
        plain = None if record is None else json.loads(json.dumps(dict(record)))
        with _quiet():
            self._storage = open_storage(storage)
            known = {study.study_name: study for study in self._storage.get_all_studies()}
            if name in known:
                self._id = known[name]._study_id
                self._check(known[name].user_attrs.get(_RECORD), plain)
            elif plain is None:
                refuse("the storage has no study of this name", name, ", ".join(known) or "none")
            else:
                ways = [StudyDirection.MAXIMIZE if o.maximise else StudyDirection.MINIMIZE for o in self.objectives]
                self._id = self._storage.create_new_study(ways, name)
                self._storage.set_study_user_attr(self._id, _RECORD, plain)
                # The names that optuna-dashboard shows the values under.
                names = [str(objective) for objective in self.objectives]
                self._storage.set_study_system_attr(self._id, "study:metric_names", names)

    def _check(self, theirs: Any, ours: Mapping[str, Any] | None) -> None:
        if ours is None:
            return
        if theirs is None:
            # Either no study of ours, or one that was killed before it had a record, and then has no trials.
            if self._storage.get_n_trials(self._id):
                refuse("the storage has a study of this name that is not of a search", self.name, "another name")
            self._storage.set_study_user_attr(self._id, _RECORD, dict(ours))
            return
        for key in {**theirs, **ours}:
            if theirs.get(key) != ours.get(key):
                refuse(
                    f"study {self.name!r} was begun with another {key}",
                    _short(ours.get(key)),
                    f"{_short(theirs.get(key))}, as it was begun with, or another study",
                )

    def add(self, trial: Trial) -> None:
        """Writes a trial: one record, that is there whole or not at all."""
        with _quiet():
            self._storage.create_new_trial(self._id, self._frozen(trial))

    def trials(self) -> list[Trial]:
        """All of them, in the order in which they were proposed."""
        frozen = self._storage.get_all_trials(self._id, deepcopy=False)
        found = [_thawed(each) for each in frozen if "arch" in each.user_attrs]
        return sorted(found, key=lambda trial: (trial.number < 0, trial.number, trial.arch.id))

    def optuna(self) -> optuna.Study:
        """The study as Optuna has it."""
        with _quiet():
            return optuna.load_study(study_name=self.name, storage=self._storage)

    def _frozen(self, trial: Trial) -> FrozenTrial:
        params, distributions = self._parameters(trial.arch)
        values = [trial.value(objective.name) for objective in self.objectives] if trial.complete else None
        attributes: dict[str, Any] = {f"score.{name}": float(value) for name, value in trial.scores.items()}
        attributes |= {f"cost.{name}": float(value) for name, value in trial.costs.items()}
        plain = trial.to_dict()
        attributes |= {key: plain[key] for key in _KEPT if key in plain}
        attributes["arch"] = trial.arch.to_json()
        now = datetime.now()
        return FrozenTrial(
            number=-1,  # the storage's to give, like the id
            trial_id=-1,
            state=TrialState.COMPLETE if trial.complete else TrialState.FAIL,
            value=None,
            values=values,
            datetime_start=now - timedelta(seconds=trial.seconds),
            datetime_complete=now,
            params=params,
            distributions=distributions,
            user_attrs=attributes,
            system_attrs={},
            intermediate_values={},
        )

    def _parameters(self, arch: Arch) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
        """The choices that make the network, by the names of the space's genes."""
        layout, vector = self.space.layout, self.space.encode(arch)
        used = layout.used(vector[None])[0]
        params: dict[str, Any] = {}
        distributions: dict[str, BaseDistribution] = {}
        for gene, index, on in zip(layout.genes, vector.tolist(), used.tolist(), strict=True):
            if on:
                params[gene.name] = gene.choices[index]
                distributions[gene.name] = self._distributions[gene.name]
        return params, distributions


_KEPT = ("number", "id", "reason", "generation", "parents", "made", "seed", "split", "seconds", "detail")


def _thawed(frozen: FrozenTrial) -> Trial:
    given = frozen.user_attrs

    def named(prefix: str) -> dict[str, float]:
        return {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)}

    own = {key: given[key] for key in _KEPT if key in given and key != "id"}
    return Trial(
        **{**own, "parents": tuple(given.get("parents", ()))},
        arch=Arch.from_json(given["arch"]),
        scores=named("score."),
        costs=named("cost."),
        state="failed" if frozen.state == TrialState.FAIL else "complete",
    )


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


# -- storage -----------------------------------------------------------------------------------------------------------


def open_storage(storage: str | Path | BaseStorage) -> BaseStorage:
    """A journal file, or a database by its URL (sqlite:///, postgresql://, mysql://)."""
    if isinstance(storage, BaseStorage):
        return storage
    if isinstance(storage, str) and "://" in storage:
        try:
            return RDBStorage(storage)
        except Exception as error:
            refuse(f"the storage cannot be opened ({str(error).splitlines()[0]})", storage, "a URL that Optuna takes")
    path = Path(storage)
    path.parent.mkdir(parents=True, exist_ok=True)
    _repair(path)
    return JournalStorage(JournalFileBackend(str(path)))


def _repair(path: Path) -> None:
    """What a killed process leaves behind: a lock that nobody will release, and a last line without its end."""
    lock = Path(f"{path}.lock")
    if os.path.lexists(lock):
        begun = os.lstat(lock).st_mtime_ns
        until = time.monotonic() + _STALE
        while os.path.lexists(lock) and os.lstat(lock).st_mtime_ns == begun and time.monotonic() < until:
            time.sleep(0.01)
        if os.path.lexists(lock) and os.lstat(lock).st_mtime_ns == begun:
            lock.unlink()
    if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        whole = content[: content.rfind(b"\n") + 1]
        replace_file(path, lambda partial: partial.write_bytes(whole))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's messages to people who did not ask for Optuna."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
