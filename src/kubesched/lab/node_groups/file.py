"""Reader of node groups: documents of kind NodeGroup, and NodePools of Karpenter with their node classes.

    apiVersion: kubesched.io/v1alpha1
    kind: NodeGroup
    metadata: {name: general}
    spec:
      resources: {cpu: 4, memory: 16Gi}      # or `template:` (a Node), or `like: NODE`
      zones: [a, b]
      max: 20
      price: 0.192

Callers: ``kubesched plan``, and simulations whose nodes come and go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from kubesched.api.decode import DecodeError, from_builtins
from kubesched.api.document_stream import readable_documents
from kubesched.api.documents import TextError
from kubesched.api.selectors import is_label_value
from kubesched.api.types import Node
from kubesched.cluster.files import ManifestError, read_text

from .catalogue import Catalogue
from .fields import Fields
from .group import MOST_NODES, NodeGroup
from .karpenter import NODE_CLASS_KINDS, groups_of_pool, reserved_by
from .offers import size_of, template_of

__all__ = ["API_VERSION", "KIND", "parse_node_groups", "read_node_groups"]

API_VERSION: Final = "kubesched.io/v1alpha1"
KIND: Final = "NodeGroup"
#: Most groups in all files together.
_MOST: Final = 10_000
_DEFAULT_MAXIMUM: Final = 1000


def read_node_groups(paths: Iterable[str | Path], catalogue: Catalogue | None = None) -> list[NodeGroup]:
    """Return the groups of some files, in order. The catalogue has sizes and prices of instance types.

    Raises:
        ManifestError: when a file cannot be read, or with every field that cannot be used.
    """
    texts: list[tuple[str, str]] = []
    problems: list[str] = []
    for path in paths:
        try:
            texts.append((str(path), read_text(Path(path))))
        except ManifestError as error:
            problems += error.problems
    found = _groups(texts, catalogue or {}, problems)
    if problems:
        raise ManifestError(*problems)
    return found


def parse_node_groups(text: str, name: str, catalogue: Catalogue | None = None) -> list[NodeGroup]:
    """Return the groups of a text; ``name`` is the name of the text in messages.

    Raises:
        ManifestError: see :func:`read_node_groups`.
    """
    problems: list[str] = []
    found = _groups([(name, text)], catalogue or {}, problems)
    if problems:
        raise ManifestError(*problems)
    return found


def _groups(texts: Iterable[tuple[str, str]], catalogue: Catalogue, problems: list[str]) -> list[NodeGroup]:
    documents = [one for name, text in texts for one in _documents(name, text, problems)]
    if not documents and not problems:
        problems.append(f"no node group was given; a file has documents of kind {KIND}, or NodePools")
    classes: dict[str, dict[str, Any]] = {}
    for data, where in documents:
        if data.get("kind") in NODE_CLASS_KINDS:
            name = Fields(data, where, "", problems).within("metadata").text("name")
            classes[name] = reserved_by(data, where, problems)
    found: dict[str, NodeGroup] = {}
    for data, where in documents:
        made: list[NodeGroup] = []
        if data.get("kind") == "NodePool":
            made = groups_of_pool(data, where, catalogue, classes, problems)
        elif data.get("kind") not in NODE_CLASS_KINDS:
            made = [_group(data, where, catalogue, problems)]
        for group in made:
            if group.name and group.name in found:
                problems.append(
                    f"{where}: metadata.name: {group.name!r}: is the name of a group in {found[group.name].source}, too; "
                    "give one of them another name"
                )
            found[group.name] = group
    if len(found) > _MOST:
        problems.append(f"{len(found):,} node groups are given; the most are {_MOST:,}")
    if classes and not found and not problems:
        problems.append("node classes are given without a NodePool that uses them")
    return list(found.values())


def _documents(name: str, text: str, problems: list[str]) -> list[tuple[Mapping[str, Any], str]]:
    unreadable: list[TextError] = []
    found = []
    for document in readable_documents(text, name, unreadable):
        if document.data is None:
            continue
        line = document.line_of()
        where = f"{name}: document {document.number}" + (f", line {line}" if line else "")
        data = document.data
        if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
            problems.append(f"{where}: expected a document with `apiVersion: {API_VERSION}` and `kind: {KIND}`")
        elif data["kind"] == KIND and data.get("apiVersion") != API_VERSION:
            problems.append(f"{where}: apiVersion: {data.get('apiVersion')!r}: expected {API_VERSION}")
        elif data["kind"] not in (KIND, "NodePool", *NODE_CLASS_KINDS):
            problems.append(f"{where}: kind: {data['kind']!r}: expected {KIND}, or NodePool with its node class")
        else:
            found.append((data, where))
    problems += [error.in_file(name) for error in unreadable]
    return found


def _group(data: Mapping[str, Any], where: str, catalogue: Catalogue, problems: list[str]) -> NodeGroup:
    top = Fields(data, where, "", problems)
    metadata, spec = top.within("metadata"), top.within("spec")
    for name in ("apiVersion", "kind"):
        top.raw(name)
    for name in ("annotations", "labels"):
        metadata.raw(name)
    name = metadata.text("name")
    if not is_label_value(name) or not name:
        metadata.bad("name", name, "expected a name of letters, digits, -, _ and ., at most 63")
    labels, taints = spec.labels("labels"), spec.taints("taints")
    offer = catalogue.get(spec.text("instanceType"))
    if spec.has("instanceType") and offer is None:
        spec.bad("instanceType", spec.raw("instanceType"), "is no row of the catalogue; --catalogue TABLE gives one")
    template, like = _model(spec, catalogue, taints)
    low = spec.whole("min", 0, most=MOST_NODES)
    high = spec.whole("max", max(low, _DEFAULT_MAXIMUM), most=MOST_NODES)
    if high < low:
        spec.bad("max", high, f"must not be below min, {low}")
    group = NodeGroup(
        name=name,
        template=template,
        like=like,
        minimum=low,
        maximum=high,
        price=spec.number("price", offer.price if offer else 0.0),
        zones=spec.texts("zones") or (offer.zones if offer else ()),
        labels=labels,
        selector=spec.labels("selector"),
        ready_after=spec.seconds("readyAfter", offer.ready_after if offer else 0.0),
        spot_failure_rate=spec.number("spotFailureRate", offer.spot_failure_rate if offer else 0.0),
        priority=spec.whole("priority", 0, most=1_000_000, least=-1_000_000),
        pool=spec.text("pool"),
        limits=spec.amounts("limits"),
        source=where,
    )
    for zone in group.zones:
        if not is_label_value(zone) or not zone:
            spec.bad("zones", zone, "expected names of zones: letters, digits, -, _ and ., at most 63")
    for one in (top, metadata, spec):
        one.close()
    return group


def _model(spec: Fields, catalogue: Catalogue, taints: list[dict[str, str]]) -> tuple[dict[str, Any], str]:
    """Return the template of a group, or the name of the node that is its model."""
    ways = ("template", "like", "resources", "instanceType")
    given = [name for name in ways if spec.has(name)]
    template, like, resources = spec.raw("template"), spec.text("like"), spec.amounts("resources")
    offer = catalogue.get(spec.text("instanceType"))
    if not given:
        spec.bad("", None, f"give one of {', '.join(ways)}: what a node is like")
    elif len(given) > 1:
        spec.bad("", given, "give one of these only")
    elif template is not None:
        return _checked(template, spec, taints), ""
    elif offer is not None:
        size = size_of(offer, catalogue)
        if not size and not offer.like:
            spec.bad("instanceType", offer.name, "the row of the catalogue has no resources such as cpu")
        more = [*taints, *offer.taints]
        made = template_of(size, instance_type=offer.name, arch=offer.arch, labels=offer.labels, taints=more)
        return (made, "") if size else ({}, offer.like)
    elif resources:
        return template_of(resources, taints=taints), ""
    if like and taints:
        spec.bad("taints", taints, "a group like an existing node has that node's taints; leave them out")
    return {}, like


def _checked(template: object, spec: Fields, taints: list[dict[str, str]]) -> dict[str, Any]:
    """Return a Node as a template, with the group's taints."""
    if not isinstance(template, Mapping):
        spec.bad("template", template, "expected a Node, with status.allocatable")
        return {}
    if template.get("kind", "Node") != "Node":
        spec.bad("template.kind", template["kind"], "expected Node")
        return {}
    try:
        from_builtins(dict(template), Node)
    except DecodeError as error:
        message, _, path = str(error).partition(" - at `$")
        spec.problems.append(f"{spec.where}: spec.template{path.removesuffix('`')}: {message[:1].lower()}{message[1:]}")
        return {}
    inner = Fields(template, spec.where, "spec.template", spec.problems)
    status = inner.within("status")
    amounts = status.amounts("allocatable") or status.amounts("capacity")
    if not amounts:
        spec.bad("template.status.allocatable", None, "expected amounts such as {cpu: 4, memory: 16Gi, pods: 110}")
    own = dict(template.get("spec") or {})
    if taints:
        own["taints"] = [*(own.get("taints") or []), *taints]
    known = {
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        **(template.get("status") or {}),
    }
    full = {"capacity": dict(amounts), "allocatable": dict(amounts)}
    return {**template, "apiVersion": "v1", "kind": "Node", "spec": own, "status": {**known, **full}}
