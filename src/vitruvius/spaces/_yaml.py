"""Spaces as plain data and as YAML, the form in which users write their own.

name: mine
family: vit
patch: 16
class_token: true
pool: token
positions: absolute
net: {}                           # chosen once for the network
stages:
  - dim: [192, 240]
    depth: [10, 11, 12]           # or: depth: 12, identity: anywhere
    stage: {}                     # chosen once for the stage
    block: {heads: [3, 4], head_dim: 64, mlp_ratio: [3, 4]}
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import yaml

from vitruvius.arch import refuse, require_keys, require_list
from vitruvius.spaces._declaration import Declaration, StageSpace

_REQUIRED = [f.name for f in fields(Declaration) if f.default is MISSING and f.default_factory is MISSING]
_OPTIONAL = [f.name for f in fields(Declaration) if f.name not in _REQUIRED]
_STAGE_OPTIONAL = [f.name for f in fields(StageSpace) if f.name != "depth"]


def declaration_from_dict(data: object) -> dict[str, Any]:
    """The keyword arguments of a space."""
    data = require_keys("a space", data, _REQUIRED, _OPTIONAL)
    stages = []
    for index, stage in enumerate(require_list("stages", data["stages"]), start=1):
        stage = require_keys(f"stage {index}", stage, ("depth",), _STAGE_OPTIONAL)
        stages.append(StageSpace(**_without_defaults(StageSpace, stage)))
    if isinstance(eps := data.get("norm_eps"), str):
        data["norm_eps"] = _number(eps)  # YAML takes 1e-6 for a word
    return {**_without_defaults(Declaration, data), "stages": tuple(stages)}


def _without_defaults(kind: type, data: dict[str, Any]) -> dict[str, Any]:
    """Fields given as null are as good as not given, where they have a default."""
    optional = {f.name for f in fields(kind) if f.default is not MISSING or f.default_factory is not MISSING}
    return {name: value for name, value in data.items() if value is not None or name not in optional}


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def declaration_to_dict(space: Declaration) -> dict[str, Any]:
    """Plain data; what has its default is left out."""
    data = {f.name: getattr(space, f.name) for f in fields(Declaration) if getattr(space, f.name) != _default(f)}
    data["stages"] = [
        {f.name: getattr(stage, f.name) for f in fields(stage) if getattr(stage, f.name) != _default(f)}
        for stage in space.stages
    ]
    plain = _plain(data)
    assert isinstance(plain, dict)
    return plain


def _default(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def read_yaml(source: str | Path) -> object:
    """The data of a YAML file, or of YAML text."""
    if not isinstance(source, str | Path):
        refuse("a space's YAML must be a path or text", type(source).__name__, "a YAML file, or YAML text")
    text = source
    if isinstance(source, Path) or "\n" not in source:
        try:
            text = Path(source).read_text()
        except OSError as error:
            refuse(f"a space's YAML file cannot be read ({error.strerror})", str(source), "a YAML file, or YAML text")
        except UnicodeDecodeError:
            refuse("a space's YAML file must be text", str(source), "UTF-8")
        except ValueError as error:  # a null byte in the name
            refuse(f"a space's YAML file cannot be read ({error})", str(source), "a YAML file, or YAML text")
    try:
        return yaml.safe_load(str(text))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that is none, a number of 5,000 digits, ...
        refuse("a space must be YAML", " ".join(str(error).split()), "what Space.to_yaml writes")


def write_yaml(data: dict[str, Any]) -> str:
    return yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=110)
