"""The report's last section: what was run, on what, with which versions."""

from __future__ import annotations

from typing import Any

from vitruvius.report._page import Part, Section, details, preformatted, table
from vitruvius.report._read import Contents

__all__ = ["provenance"]

_DATA = {"source": "images", "hash": "split hash", "train": "to train on", "val": "to search on", "test": "to test on"}
_LONGEST = 240
"""Characters of a setting that are shown; `run.json` has it whole."""


def provenance(contents: Contents) -> Section:
    commands = list(dict.fromkeys(line for name in contents.records for line in contents.commands(name)))
    parts: list[Part] = [preformatted("\n".join(commands))] if commands else []
    versions = {
        ", ".join(f"{name} {version}" for name, version in record.get("versions", {}).items()): None
        for record in contents.records.values()
    }
    rows = [{"what": "versions", "value": said} for said in versions if said]
    for data in _sources(contents):
        rows += [{"what": said, "value": str(data[key])} for key, said in _DATA.items() if data.get(key) is not None]
    parts += [table(rows)] if rows else []
    for name, record in contents.records.items():
        settings = _settings(record["config"])
        if settings:
            parts.append(details(f"Settings of {name or 'this run'} ({record['kind']})", table(settings)))
    return Section("provenance", "Commands, versions, settings", parts)


def _sources(contents: Contents) -> list[dict[str, Any]]:
    """Each split once."""
    found = {}
    for record in contents.records.values():
        data = record.get("data") or {}
        if data:
            found.setdefault(data.get("hash"), data)
    return list(found.values())


def _settings(config: dict[str, Any]) -> list[dict[str, str]]:
    rows = []
    for key, value in config.items():
        if value not in (None, {}, []):
            said = str(value)
            rows.append({"what": key, "value": said if len(said) <= _LONGEST else f"{said[:_LONGEST]} ..."})
    return rows
