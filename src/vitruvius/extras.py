"""The optional dependencies: which there are, what they need, and the command that installs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vitruvius.arch import refuse

__all__ = ["Need", "extras", "install_command", "needs_of", "require_extra"]

_OURS = "vitruvius"


@dataclass(frozen=True, slots=True)
class Need:
    """A package that is needed, and the version that is there."""

    package: str
    wanted: str
    found: str | None

    @property
    def met(self) -> bool:
        return self.found is not None and (
            not self.wanted or Requirement(f"x{self.wanted}").specifier.contains(self.found, prereleases=True)
        )


def extras() -> list[str]:
    return sorted(metadata(_OURS).get_all("Provides-Extra") or ())


def needs_of(extra: str | None = None) -> list[Need]:
    """What an extra needs, with the extras that it names; None: what every installation needs."""
    return sorted(_needs(extra, set()), key=lambda need: need.package)


def _needs(extra: str | None, seen: set[str | None]) -> Iterator[Need]:
    seen.add(extra)
    for line in requires(_OURS) or ():
        need = Requirement(line)
        belongs = need.marker is None or need.marker.evaluate({"extra": extra or ""})
        if not belongs or (extra is not None and need.marker is None):
            continue
        if canonicalize_name(need.name) == _OURS:
            for other in sorted(need.extras - seen):
                yield from _needs(other, seen)
        else:
            yield Need(need.name, str(need.specifier), _version(need.name))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def install_command(extra: str) -> str:
    return f"pip install '{_OURS}[{extra}]'"


def require_extra(extra: str, what: str) -> None:
    """One line, before any work, where packages that something needs are missing or too old."""
    if missing := [need for need in needs_of(extra) if not need.met]:
        lacking = ", ".join(f"{need.package}{need.wanted} (found: {need.found or 'none'})" for need in missing)
        refuse(f"{what} needs the extra {extra!r}", f"without {lacking}", install_command(extra))
