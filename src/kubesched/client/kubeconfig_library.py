"""Import of the kubeconfig loader of kubernetes_asyncio, without that package's client.

The package imports 850 modules, a class for each kind of object: 34 MB and 0.2 s of CPU. Its loader needs two names of
them, for functions that are not called here. Caller: :mod:`.credential_sources`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Final

__all__ = ["without_its_client"]

_PACKAGE: Final = "kubernetes_asyncio"
_CLIENT: Final = f"{_PACKAGE}.client"


@contextmanager
def without_its_client() -> Iterator[None]:
    """Let the block import ``kubernetes_asyncio.config`` alone.

    Afterwards an import elsewhere, as by a plugin, finds the whole package. If the package is loaded already, or is not
    installed, the block imports as usual.
    """
    spec = None if _PACKAGE in sys.modules else find_spec(_PACKAGE)
    if spec is None:
        yield
        return
    client = ModuleType(_CLIENT)
    client.ApiClient = client.Configuration = object  # type: ignore[attr-defined]
    sys.modules |= {_PACKAGE: module_from_spec(spec), _CLIENT: client}
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
            del sys.modules[name]
