"""Manifests from anything that holds objects: paths, text, plain data, and objects of Kubernetes client libraries.

Caller: :mod:`..entry` and :mod:`..stepping`. Files are read by :mod:`kubesched.cluster.files`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias

from kubesched.api.decode import DecodeError, from_builtins
from kubesched.api.kinds import CORE_EVENTS, EVENTS, LEASES, NODES
from kubesched.api.quantity import QuantityError, parse_quantity
from kubesched.api.requests import is_scalar_resource
from kubesched.api.selectors import is_qualified_name
from kubesched.api.types import Node
from kubesched.cluster.files import (
    Manifest,
    ManifestError,
    Manifests,
    SnapshotError,
    import_dump,
    is_saved_cluster,
    load_manifests,
    object_manifests,
    parse_manifests,
    read,
)
from kubesched.cluster.kubelets import node_template

from .intake import wrong_devices

__all__ = [
    "OWN_KINDS",
    "Objects",
    "check_amounts",
    "cluster_of",
    "manifests_of",
    "node_template_of",
    "wrong_amount",
]

#: Objects in any form: a path, YAML or JSON as a text of several lines, plain data, an object of a Kubernetes client
#: library, or several of these.
Objects: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Manifests | Manifest | Iterable[Any]

_NATIVE: Final = ("cpu", "memory", "ephemeral-storage", "pods")
#: Kinds that a cluster writes by itself. A simulation writes its own.
OWN_KINDS: Final = frozenset({LEASES, EVENTS, CORE_EVENTS})
_EXPECTED: Final = "expected a path, a text of YAML or JSON, an object as a dict, or a list of these"


def manifests_of(given: Objects, name: str) -> Manifests:
    """Return everything that is given, in its order; ``name`` is the name of the argument in messages.

    Unusable parts are reported in the ``problems`` of the result.
    """
    found = Manifests()
    if isinstance(given, Manifests):
        found.objects += given.objects
        found.warnings += given.warnings
        found.problems += given.problems
        return found
    several = _several(given)
    paths: list[str] = []

    def read_paths() -> None:
        if paths:
            found.extend(load_manifests(paths, lenient=True))
            paths.clear()

    def is_saved(item: Any) -> bool:
        return Path(item).is_file() and is_saved_cluster(item)

    for index, item in enumerate([given] if several is None else several):
        where = name if several is None else f"{name}[{index}]"
        if isinstance(item, str) and not item.strip():
            found.problems.append(f"{where}: is an empty text; {_EXPECTED}")
            continue
        if isinstance(item, os.PathLike) or (isinstance(item, str) and "\n" not in item):
            if is_saved(item):
                found.extend(cluster_of(os.fspath(item)))
            else:
                paths.append(os.fspath(item))  # read together, to detect an object in two files
            continue
        read_paths()
        if isinstance(item, Manifest):
            found.objects.append(item)
        elif isinstance(item, Manifests):
            found.extend(item)
        else:
            found.extend(_parsed(item, where))
    read_paths()
    return found


def cluster_of(path: str, *, deleting: bool = False) -> Manifests:
    """Return the objects of a saved cluster, or of a dump of a real one (``kubectl get -o yaml``). Only reads the file.

    ``deleting`` keeps pods of a dump that are being deleted.
    Unusable parts are reported in the ``problems`` of the result.
    """
    try:
        if not is_saved_cluster(path):
            dump = import_dump([path], deleting=deleting)
            return Manifests(dump.objects, dump.warnings)
        items = read(path).items
    except ManifestError as error:
        return Manifests(problems=[*error.problems])
    except (OSError, SnapshotError) as error:
        text = f"{path}: cannot be read: {error.strerror or error}" if isinstance(error, OSError) else str(error)
        return Manifests(problems=[text])
    return Manifests([Manifest(item.kind, item.data(), path) for item in items if item.kind not in OWN_KINDS])


def _several(given: Any) -> list[Any] | None:
    """Return the items of a collection; None for a single object or path."""
    if (
        isinstance(given, (str, bytes, bytearray, os.PathLike, Mapping, Manifest))
        or hasattr(given, "to_dict")
        or not isinstance(given, Iterable)
    ):
        return None
    return list(given)


def _parsed(item: Any, where: str) -> Manifests:
    if isinstance(item, str):
        return parse_manifests(item, where, lenient=True)
    try:
        data = _plain(item)
    except RecursionError:
        return Manifests(problems=[f"{where}: is no plain data: it contains itself"])
    if not isinstance(data, Mapping):
        return Manifests(problems=[f"{where}: {_EXPECTED}, found {type(item).__name__}"])
    return object_manifests(data, where, lenient=True)


def _plain(item: Any) -> Any:
    """Return an object of a client library in the API's form. Anything else is returned as it is.

    The models of the official client map their attributes to the API's names. The models of lightkube, kr8s and others
    have ``to_dict`` with these names.
    """
    names = getattr(item, "attribute_map", None)
    if isinstance(names, Mapping):
        values = ((name, getattr(item, attribute)) for attribute, name in names.items())
        return {name: _plain(value) for name, value in values if value is not None}
    if isinstance(item, list | tuple):
        return [_plain(value) for value in item]
    if isinstance(item, Mapping):
        return {str(name): _plain(value) for name, value in item.items()}
    convert = getattr(item, "to_dict", None)
    return convert() if callable(convert) else item


def node_template_of(
    given: str | os.PathLike[str] | Mapping[str, Any] | None, resources: Mapping[str, str | int] | None = None
) -> dict[str, Any]:
    """Return a Node to make hollow nodes from: the given one or the default, with other amounts of some resources.

    Raises:
        ManifestError: when it holds no Node, or an amount cannot be used.
    """
    if given is None:
        template = node_template()
    elif isinstance(given, Mapping):
        template = dict(given)
        if template.get("kind", "Node") != "Node":
            raise ManifestError(f"node_template: is a {template['kind']}; a template is a manifest of kind Node")
        try:
            from_builtins(template, Node)
        except DecodeError as error:
            raise ManifestError(f"node_template: {error}") from None
    elif isinstance(given, str | os.PathLike):
        template = _load_node_template(os.fspath(given))
    else:
        raise ManifestError(f"node_template: expected a Node as a dict, or a path, found {type(given).__name__}")
    if not isinstance(resources, Mapping | None):
        raise ManifestError(f"node_resources: expected a dict of amounts, found {type(resources).__name__}")
    status = dict(template.get("status") or {})
    check_amounts({f"node resource {name}={amount}": (name, amount) for name, amount in (resources or {}).items()})
    for amounts in ("capacity", "allocatable"):
        if resources:
            status[amounts] = {**(status.get(amounts) or {}), **{name: str(one) for name, one in resources.items()}}
    return {**template, "status": status}


def check_amounts(given: Mapping[str, tuple[Any, Any]]) -> None:
    """Check resources and amounts of a hollow node, each pair by the place where it was given.

    Raises:
        ManifestError: with every pair that cannot be used.
    """
    problems = [f"{where}: {problem}" for where, pair in given.items() if (problem := wrong_amount(*pair))]
    if problems:
        raise ManifestError(*problems)


def wrong_amount(name: Any, amount: Any) -> str:
    """Return the problem of an amount of a node's resource; empty when there is none."""
    if name not in _NATIVE and not (isinstance(name, str) and is_scalar_resource(name) and is_qualified_name(name)):
        near = get_close_matches(str(name).rpartition("/")[2].lower(), (*_NATIVE, "gpu"), 1)
        hint = f"; did you mean {near[0].replace('gpu', 'nvidia.com/gpu')}?" if near else ""
        if name in ("node", "nodes"):
            hint = "; how many nodes there are is an option of its own"
        known = f"{', '.join(_NATIVE)}, hugepages-2Mi, and names with a domain such as nvidia.com/gpu"
        return f"nodes have no resource of this name{hint} (there are {known})"
    try:
        quantity = parse_quantity(str(amount))
    except QuantityError as error:
        return str(error)
    if quantity.nanos < 0:
        return "must not be negative"
    if quantity.nanos % 10**9 and name not in ("cpu", "memory", "ephemeral-storage"):
        return "must be a whole number"
    return ""


def _load_node_template(path: str) -> dict[str, Any]:
    """Return the first Node of a file; its name is not used.

    Raises:
        ManifestError: when there is none, or when the devices it is annotated with cannot be read.
    """
    nodes = [item for item in load_manifests([path]).objects if item.kind == NODES]
    if not nodes:
        raise ManifestError(f"{path}: holds no Node; a template is a manifest of kind Node")
    problems = wrong_devices(nodes[:1])
    if problems:
        raise ManifestError(*problems)
    return nodes[0].data
