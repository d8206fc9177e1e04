"""Parts that many pods have alike, kept once.

The pods of one template have the same spec, often byte for byte but for the node: such a spec is decoded once, and what is
derived from it (:class:`kubesched.framework.podinfo.PodInfo`) can be shared, too. Specs that differ somewhere (a real API
server adds a volume with a random name) share what is equal among the pods of an owner: containers, tolerations and so on.
A running pod's view takes 4.7 kB decoded on its own and 1.4 kB with these parts shared.
Caller: :class:`kubesched.api.wire.Item`.
"""

from __future__ import annotations

from sys import intern
from typing import Final

import msgspec
from msgspec.structs import force_setattr, replace

from .decode import decode_object
from .types import ObjectMeta, Pod, PodCondition, PodSpec, PodStatus

__all__ = ["decode_parts", "decode_pod", "share_parts", "shared_labels", "split_spec"]

_MOST: Final = 1 << 12
#: Decoded specs without a node, by their bytes; emptied when it grows too large.
_specs: dict[bytes, PodSpec] = {}
_MOST_SPECS: Final = 1 << 10
#: How a spec begins that was given a node by the embedded cluster.
_ON_NODE: Final = b'{"nodeName":"'
#: The first pod seen of each owner, and conditions that pods have; emptied when they grow too large.
_models: dict[str, Pod] = {}
_conditions: dict[tuple[PodCondition, ...], tuple[PodCondition, ...]] = {}
#: Labels that objects have, one dict each; emptied when it grows too large.
_labels: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
_MOST_LABELS: Final = 1 << 14


class _Shell(msgspec.Struct, rename="camel", gc=False):
    """A pod whose spec is not decoded yet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: PodStatus = PodStatus()


_shell: Final = msgspec.json.Decoder(_Shell).decode
_metadata: Final = msgspec.json.Decoder(ObjectMeta).decode
_spec: Final = msgspec.json.Decoder(PodSpec).decode
_status: Final = msgspec.json.Decoder(PodStatus).decode


def shared_labels(labels: dict[str, str]) -> dict[str, str]:
    """One dict for all objects with these labels, as the pods of a workload have. Never change it."""
    key = tuple(labels.items())
    known = _labels.get(key)
    if known is None:
        if len(_labels) >= _MOST_LABELS:
            _labels.clear()
        known = _labels[key] = dict(labels)
    return known


def decode_pod(raw: bytes, namespace: str = "", name: str = "", uid: str = "") -> Pod:
    """Decode a pod, with a spec shared by all pods that have the same one but for the node.

    The namespace, name and UID are the texts that its item has, which the pod then has, too.

    Raises:
        DecodeError: when the text is not JSON or a field has the wrong type.
    """
    try:
        shell = _shell(raw)
        pod = Pod(shell.metadata, _shared_spec(*split_spec(bytes(shell.spec))), shell.status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pod = decode_object(raw, Pod)  # with nulls, or with an error that names the whole path
    _share(pod, namespace, name, uid)
    return pod


def decode_parts(
    metadata: bytes, node: bytes, spec: bytes, status: bytes, namespace: str, name: str, uid: str
) -> Pod | None:
    """Like :func:`decode_pod` from the sections, the spec as :func:`split_spec` gives it; None if one cannot be decoded."""
    try:
        pod = Pod(_metadata(metadata), _shared_spec(node, spec), _status(status))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    _share(pod, namespace, name, uid)
    return pod


def _share(pod: Pod, namespace: str, name: str, uid: str) -> None:
    metadata = pod.metadata
    if (metadata.namespace, metadata.name, metadata.uid) == (namespace, name, uid):
        force_setattr(metadata, "namespace", namespace)
        force_setattr(metadata, "name", name)
        force_setattr(metadata, "uid", uid)
    share_parts(pod)


def split_spec(raw: bytes) -> tuple[bytes, bytes]:
    """The node's name in a pod's spec, and the spec without it; b"" where it is not at the beginning."""
    if raw.startswith(_ON_NODE):
        end = raw.find(b'",', len(_ON_NODE))
        name = raw[len(_ON_NODE) : end]
        if end > len(_ON_NODE) and b"\\" not in name:
            return name, b"{" + raw[end + 2 :]
    return b"", raw


def _shared_spec(node: bytes, raw: bytes) -> PodSpec:
    spec = _specs.get(raw)
    if spec is None:
        spec = _spec(raw)
        if len(_specs) >= _MOST_SPECS:
            _specs.clear()
        _specs[raw] = spec
    return replace(spec, node_name=node.decode()) if node else spec


def share_parts(pod: Pod) -> None:
    """Let a freshly decoded pod use the parts of another one of its owner where they are equal.

    Objects of the API never change, which is why their parts can be shared. This puts an equal value in the place of
    a value, in an object that is not shared yet.
    """
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    if metadata.labels:
        force_setattr(metadata, "labels", shared_labels(metadata.labels))
    if metadata.creation_timestamp is not None:
        force_setattr(metadata, "creation_timestamp", intern(metadata.creation_timestamp))
    if metadata.generate_name:
        force_setattr(metadata, "generate_name", intern(metadata.generate_name))
    if status.start_time is not None:
        force_setattr(status, "start_time", intern(status.start_time))
    conditions = status.conditions
    if conditions:
        known = _conditions.get(conditions)
        if known is not None:
            force_setattr(status, "conditions", known)
        else:
            if len(_conditions) >= _MOST:
                _conditions.clear()
            _conditions[conditions] = conditions
    owners = metadata.owner_references
    if not owners:
        return
    uid = owners[0].uid
    model = _models.get(uid)
    if model is None:
        if len(_models) >= _MOST:
            _models.clear()
        _models[uid] = pod
        return
    if owners == model.metadata.owner_references:
        force_setattr(metadata, "owner_references", model.metadata.owner_references)
    like = model.spec
    if spec.containers == like.containers:
        force_setattr(spec, "containers", like.containers)
    if spec.tolerations == like.tolerations:
        force_setattr(spec, "tolerations", like.tolerations)
    if spec.affinity is not None and spec.affinity == like.affinity:
        force_setattr(spec, "affinity", like.affinity)
    if spec.topology_spread_constraints and spec.topology_spread_constraints == like.topology_spread_constraints:
        force_setattr(spec, "topology_spread_constraints", like.topology_spread_constraints)
    if status.container_statuses and status.container_statuses == model.status.container_statuses:
        force_setattr(status, "container_statuses", model.status.container_statuses)
