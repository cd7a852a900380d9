"""What is installed, what it runs on, and what would have to be installed for more."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from typing import Any

from rich.console import Console

from vitruvius.cli._common import AsJson, app, escape, show
from vitruvius.extras import Need, extras, install_command, needs_of

_FOR = {
    "bench": "benchmarks against pymoo",
    "datasets": "Hugging Face datasets and WebDataset shards",
    "dev": "tests, types, lint",
    "distributed": "candidates evaluated on many machines, by Ray",
    "docs": "the documentation's site",
    "onnx": "`vitruvius export` to ONNX",
    "report": "`vitruvius report`",
    "tasks": "metrics of other tasks than classification",
}


@app.command("doctor", epilog="Example: vitruvius doctor")
def doctor_command(as_json: AsJson = False) -> None:
    """Say what is installed, on what devices it runs, and which extras are there."""
    found = examine()
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        _show(found)
    if found["problems"]:
        sys.exit(1)


def examine() -> dict[str, Any]:
    needs = needs_of()
    listed = [_extra(name) for name in extras()]
    problems = [f"{_text(need)}: pip install '{need.package}{need.wanted}'" for need in needs if not need.met]
    return {
        "vitruvius": _own_version(),
        "python": f"{platform.python_version()} at {sys.executable}",
        "platform": platform.platform(),
        "packages": {need.package: need.found for need in needs},
        "devices": _devices() if not problems else [],
        "extras": listed,
        "tools": {name: shutil.which(name) for name in ("gcc", "chromium")},
        "problems": problems,
    }


def _own_version() -> str:
    from vitruvius import __version__

    return __version__


def _extra(name: str) -> dict[str, Any]:
    missing = [_text(need) for need in needs_of(name) if not need.met]
    return {"extra": name, "for": _FOR.get(name, ""), "missing": missing, "command": install_command(name)}


def _text(need: Need) -> str:
    return f"{need.package} {need.found or 'is missing'}{f', wanted {need.wanted}' if need.found else ''}"


def _devices() -> list[dict[str, Any]]:
    """Where networks can run, the one that is chosen by default first."""
    import torch

    from vitruvius.training.feed import usable_cores

    found: list[dict[str, Any]] = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(index)
        found.append(
            {"device": f"cuda:{index}", "what": f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"}
        )
    if torch.backends.mps.is_available():
        found.append({"device": "mps", "what": "Apple GPU"})
    threads = f"{torch.get_num_threads()} threads of {usable_cores()} cores"
    limits = [f"{name}={os.environ[name]}" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ]
    what = ", ".join([platform.processor() or platform.machine(), threads, *limits, _vector_set(torch)])
    return [*found, {"device": "cpu", "what": what}]


def _vector_set(torch: Any) -> str:
    return str(torch.backends.cpu.get_cpu_capability())


def _show(found: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]Vitruvius {found['vitruvius']}[/], Python {escape(found['python'])}, {found['platform']}")
    for device in found["devices"]:
        console.print(f"[bold]{device['device']}[/]  {escape(device['what'])}")
    console.print(", ".join(f"{name} {version or '(missing)'}" for name, version in found["packages"].items()))
    tools = [f"{name} {path or '(none)'}" for name, path in found["tools"].items()]
    console.print(f"tools: {', '.join(tools)} (gcc: torch.compile; chromium: tests of reports)")
    rows = [
        {
            "extra": extra["extra"],
            "for": extra["for"],
            "there": "no" if extra["missing"] else "yes",
            "missing": ", ".join(extra["missing"]),
            "to install": extra["command"] if extra["missing"] else "",
        }
        for extra in found["extras"]
    ]
    show(rows, False)
    for problem in found["problems"]:
        console.print(f"[bold red]problem:[/] {escape(problem)}")
    if not found["problems"]:
        print("All that every installation needs is there.")
