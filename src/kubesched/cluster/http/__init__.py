"""The HTTP face of the embedded cluster: what kube-apiserver shows to kubectl, client libraries and schedulers.

``server`` listens, ``dispatch`` routes, ``reading`` and ``writing`` carry out; ``catalog`` knows the
resources, ``tables`` their forms. Needs the ``server`` extra (aiohttp).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .access_files import KUBECONFIG_NAME, CertificateFiles, make_certificates, write_kubeconfig
    from .fieldcheck import unknown_in_manifest
    from .origins import Origins, is_loopback
    from .protobuf import decode_protobuf
    from .server import HttpServer

__all__ = [
    "KUBECONFIG_NAME",
    "CertificateFiles",
    "HttpServer",
    "Origins",
    "decode_protobuf",
    "is_loopback",
    "make_certificates",
    "unknown_in_manifest",
    "write_kubeconfig",
]

_MODULES = {
    "HttpServer": "server",
    "Origins": "origins",
    "decode_protobuf": "protobuf",
    "is_loopback": "origins",
    "unknown_in_manifest": "fieldcheck",
}


def __getattr__(name: str) -> Any:
    """The modules are imported on first use: the checks of manifests work without aiohttp."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES.get(name, 'access_files')}", __name__), name)
