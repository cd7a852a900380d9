"""A run that is killed at any moment and started again is the run that was never stopped, bit for bit."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from training.conftest import NOISY, SUPERFORMER
from training.resume_worker import work
from vitruvius.training import SuperformerConfig, open_run, read_config, train

NANO = {"superformer": SUPERFORMER | NOISY | {"checkpoint_every": 2, "strategy": "sandwich"}}


def nano_retrain() -> dict[str, Any]:
    """A plain network whose images go through timm's augmentation, in worker processes."""
    from vitruvius import spaces

    space = spaces.load("autoformer-nano", img_size=8, patch=4)
    kept = {key: value for key, value in (SUPERFORMER | NOISY).items() if not key.startswith("space")}
    augmented = {"auto_augment": "rand-m5-mstd0.5", "erasing": 0.25, "repeated_augmentation": 2, "img_size": 8}
    return kept | augmented | {"arch": space.smallest.to_json(), "workers": 1, "checkpoint_every": 3, "epochs": 1}


def contents(folder: Path) -> dict[str, bytes]:
    """What a run leaves behind for others, but for the clock's."""
    files = [*folder.glob("final/*"), folder / "log.jsonl", folder / "result.json", folder / "run.json"]
    assert len(files) >= 5
    return {file.name: file.read_bytes() for file in files}


def started(*arguments: Any) -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["training.resume_worker", "sklearn.datasets", "torch.utils.tensorboard"])
    process = context.Process(target=work, args=arguments)
    process.start()
    return process


def unbroken(kind: str, settings: dict[str, Any], folder: Path) -> float:
    """Runs to the end; how many seconds that took."""
    start = time.monotonic()
    process = started(kind, settings, str(folder))
    process.join(300)
    assert process.exitcode == 0
    return time.monotonic() - start


def killed(kind: str, settings: dict[str, Any], folder: Path, kills: int, longest: float) -> int:
    """Kills a run so many times; how many of the kills met it still going."""
    moments, met = random.Random(0), 0
    for _ in range(kills):
        process = started(kind, settings, str(folder))
        # From the first checkpoint on; before it there is nothing that could be lost.
        until = time.monotonic() + 60
        while not list(folder.glob("checkpoints/step-*")) and time.monotonic() < until:
            time.sleep(0.01)
        process.join(moments.uniform(0.05, longest))
        met += process.is_alive()
        process.kill()
        process.join()
    return met


@pytest.mark.parametrize(
    ("kind", "kills"), [("superformer", 4), ("retrain", 2), pytest.param("superformer", 20, marks=pytest.mark.slow)]
)
def test_killed_at_random_moments(kind: str, kills: int, tmp_path: Path) -> None:
    settings = NANO["superformer"] if kind == "superformer" else nano_retrain()
    seconds = unbroken(kind, settings, tmp_path / "whole")
    met = killed(kind, settings, tmp_path / "killed", kills, 0.4 * seconds)
    unbroken(kind, settings, tmp_path / "killed")
    assert met >= max(1, kills // 4)  # a run that was killed late has not far to go, and ends before the next one
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert not list((tmp_path / "killed").glob("**/*.partial"))
    assert len(list((tmp_path / "killed" / "checkpoints").iterdir())) == 2
    if kind == "superformer":
        assert open_run(tmp_path / "killed").superformer().space.name == "vitas-nano"
    else:
        assert open_run(tmp_path / "killed").model().arch == open_run(tmp_path / "killed").arch


def test_killed_at_every_moment_of_writing_a_checkpoint(tmp_path: Path) -> None:
    """Before each file or folder that is made durable: the log, the four files, the checkpoint, the folder it is in."""
    settings = NANO["superformer"] | {"epochs": 1, "checkpoint_every": 1}
    train(read_config(SuperformerConfig, settings), tmp_path / "whole", quiet=True)
    for moment in count(1):  # the first is in the run's record; from the 9th on, each run gets a checkpoint further
        process = started("superformer", settings, str(tmp_path / "killed"), moment)
        process.join(300)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert moment > 14
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    config = read_config(SuperformerConfig, SUPERFORMER | {"checkpoint_every": 3})
    train(config, tmp_path / "whole", quiet=True)
    for damage in ("cut off", "changed", "gone"):
        folder = tmp_path / damage
        train(config, folder, quiet=True)
        (folder / "result.json").unlink()
        newest = sorted((folder / "checkpoints").iterdir())[-1] / "model.safetensors"
        data = newest.read_bytes()
        match damage:
            case "cut off":
                newest.write_bytes(data[: len(data) // 2])
            case "changed":
                newest.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
            case "gone":
                newest.unlink()
        with pytest.warns(UserWarning, match="is damaged"):
            train(config, folder, quiet=True)
        assert contents(folder) == contents(tmp_path / "whole")


def test_what_a_kill_left_half_written_is_no_obstacle(tmp_path: Path) -> None:
    config = read_config(SuperformerConfig, SUPERFORMER | {"epochs": 1})
    train(config, tmp_path / "whole", quiet=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json.77.partial").write_text("{")  # killed before there was a record
    train(config, tmp_path / "run", quiet=True)
    (tmp_path / "run" / "result.json").unlink()
    (tmp_path / "run" / "final" / "superformer.safetensors.78.partial").write_bytes(b"half")
    (tmp_path / "run" / "checkpoints" / "step-000000099.partial").mkdir()
    train(config, tmp_path / "run", quiet=True)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    assert not list((tmp_path / "run").glob("**/*.partial"))


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    config = read_config(SuperformerConfig, SUPERFORMER | {"epochs": 1})
    train(config, tmp_path / "run", quiet=True)
    before = contents(tmp_path / "run")
    assert train(config, tmp_path / "run", quiet=True).result["steps"] > 0  # nothing left to do
    assert contents(tmp_path / "run") == before
    with pytest.raises(ValueError, match=r"was begun with another lr; got 0.1; allowed: 0.002, as it was begun with"):
        train(config.model_copy(update={"lr": 0.1}), tmp_path / "run", quiet=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(ValueError, match="a run needs a folder of its own"):
        train(config, tmp_path / "other", quiet=True)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    record["data"]["hash"] = "0" * 16
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="have changed"):
        open_run(tmp_path / "run").data  # noqa: B018
    with pytest.raises(ValueError, match="is of another kind; got 'superformer'"):
        open_run(tmp_path / "run").model()
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(ValueError, match="has not finished"):
        open_run(tmp_path / "run")
    with pytest.raises(ValueError, match="a run's record cannot be read"):
        open_run(tmp_path / "other")
