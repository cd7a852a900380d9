"""timm learns our names: at once where timm is imported already, and else the moment it is.

Importing timm takes seconds and brings torch, which `import vitruvius` must not do. timm has no entry points for
others' models. So a finder waits for `import timm`, lets everybody else find it as ever, and has our names registered
once timm has run; then it leaves.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["register_with_timm"]


def register_with_timm() -> None:
    """After this, `timm.create_model("vitruvius_s3_tiny")` works, whichever of timm and vitruvius is imported first."""
    if "timm" in sys.modules:
        _register()
    elif not any(isinstance(finder, _Awaiting) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Awaiting())


def _register() -> None:
    try:
        import_module("vitruvius.export.timm_models")
    except (ImportError, AttributeError) as error:  # another timm than ours: it must still import
        warnings.warn(f"vitruvius' networks are not among timm's models: {error}", stacklevel=2)


class _Awaiting(MetaPathFinder):
    """Finds timm by everybody else's finders, and adds one thing to its execution."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "timm":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next((found for finder in others if (found := finder.find_spec(name, path, target))), None)
        if spec is None or spec.loader is None:
            return spec
        loader, execute = spec.loader, spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            # A spec may be asked for without being used (`importlib.util.find_spec`): only here is timm really there.
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _register()

        loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec
