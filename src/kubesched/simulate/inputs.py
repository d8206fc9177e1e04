"""What people have in hand, as manifests: paths, text, plain data, and objects of Kubernetes client libraries.

Caller: :mod:`.entry` and :mod:`.stepping`. Files are read by :mod:`kubesched.cluster.files`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from kubesched.api.kinds import CORE_EVENTS, EVENTS, LEASES
from kubesched.api.quantity import QuantityError, parse_quantity
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

from .loading import load_node_template

__all__ = ["Objects", "cluster_of", "manifests_of", "node_template_of"]

#: Objects, or where they are: a path, YAML or JSON as a text of several lines, plain data, an object of a Kubernetes
#: client library, or several of these.
Objects: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Manifests | Manifest | Iterable[Any]

#: Records of a cluster's own doings, which a simulation makes itself.
_OWN: Final = frozenset({LEASES, EVENTS, CORE_EVENTS})
_EXPECTED: Final = "expected a path, a text of YAML or JSON, an object as a dict, or a list of these"


def manifests_of(given: Objects, name: str) -> Manifests:
    """Everything that is given, in its order; ``name`` is the argument's in messages.

    Raises:
        ManifestError: for what cannot be read or used; all problems are in one error.
    """
    found = Manifests()
    if isinstance(given, Manifests):
        found.objects += given.objects
        found.warnings += given.warnings
        return found
    several = _several(given)
    problems: list[str] = []
    paths: list[str] = []

    def read_paths() -> None:
        if paths:
            _collect(found, lambda: load_manifests(paths), problems)
            paths.clear()

    def is_saved(item: Any) -> bool:
        return Path(item).is_file() and is_saved_cluster(item)

    for index, item in enumerate([given] if several is None else several):
        where = name if several is None else f"{name}[{index}]"
        if isinstance(item, os.PathLike) or (isinstance(item, str) and "\n" not in item):
            if is_saved(item):
                _collect(found, partial(cluster_of, os.fspath(item)), problems)
            else:
                paths.append(os.fspath(item))  # read together: an object that is in two files is found
            continue
        read_paths()
        if isinstance(item, Manifest):
            found.objects.append(item)
        elif isinstance(item, Manifests):
            found.objects += item.objects
            found.warnings += item.warnings
        else:
            _collect(found, partial(_parsed, item, where), problems)
    read_paths()
    if problems:
        raise ManifestError.of(problems)
    return found


def cluster_of(path: str) -> Manifests:
    """The objects of a saved cluster, or of a dump of a real one (``kubectl get -o yaml``). The file is only read.

    Raises:
        ManifestError: when it is neither.
    """
    try:
        if not is_saved_cluster(path):
            dump = import_dump([path])
            return Manifests(dump.objects, dump.warnings)
        items = read(path).items
    except (OSError, SnapshotError) as error:
        text = f"{path}: cannot be read: {error.strerror or error}" if isinstance(error, OSError) else str(error)
        raise ManifestError(text) from None
    return Manifests([Manifest(item.kind, item.data(), path) for item in items if item.kind not in _OWN])


def _several(given: Any) -> list[Any] | None:
    """The items of a collection; None for anything that is one object or one path."""
    if (
        isinstance(given, (str, os.PathLike, Mapping, Manifest))
        or hasattr(given, "to_dict")
        or not isinstance(given, Iterable)
    ):
        return None
    return list(given)


def _collect(found: Manifests, read: Callable[[], Manifests], problems: list[str]) -> None:
    try:
        more = read()
    except ManifestError as error:
        problems.append(str(error))
        return
    found.objects += more.objects
    found.warnings += more.warnings


def _parsed(item: Any, where: str) -> Manifests:
    if isinstance(item, str):
        return parse_manifests(item, where)
    data = _plain(item)
    if not isinstance(data, Mapping):
        raise ManifestError(f"{where}: {_EXPECTED}, found {type(item).__name__}")
    return object_manifests(data, where)


def _plain(item: Any) -> Any:
    """Objects of client libraries as the API has them; everything else as it is.

    The models of the official client map their attributes to the API's names; those of lightkube, kr8s and others
    have ``to_dict`` in these names.
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
    """A Node to make hollow nodes from: the given one or the ordinary one, with other amounts of some resources.

    Raises:
        ManifestError: when it holds no Node or an amount is no quantity.
    """
    if given is None:
        template = node_template()
    elif isinstance(given, Mapping):
        template = dict(given)
        if template.get("kind", "Node") != "Node":
            raise ManifestError(f"node_template: is a {template['kind']}; a template is a manifest of kind Node")
    else:
        template = load_node_template(os.fspath(given))
    status = dict(template.get("status") or {})
    for name, amount in (resources or {}).items():
        try:
            parse_quantity(str(amount))
        except QuantityError as error:
            raise ManifestError(f"node resource {name}={amount}: {error}") from None
    for amounts in ("capacity", "allocatable"):
        if resources:
            status[amounts] = {**(status.get(amounts) or {}), **{name: str(one) for name, one in resources.items()}}
    return {**template, "status": status}
