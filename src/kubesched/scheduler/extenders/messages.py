"""Messages to HTTP extenders and their answers, in upstream's JSON.

Keys are capitalised as in upstream's ``extender/v1`` types, unset fields are ``null``, and answers are read without
regard to case. Pods and nodes inside are ordinary Kubernetes JSON. Used by :mod:`.http`.

Source: rules/framework §8.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from ..framework.preemption import Victims
from ..nodes.podinfo import PodInfo
from .interface import ExtenderError, FilterAnswer

__all__ = [
    "MetaVictims",
    "UnreadableAnswerError",
    "bind_request",
    "filter_answer",
    "node_request",
    "preempt_answer",
    "preempt_request",
    "refusal",
    "score_answer",
]

T = TypeVar("T")

_Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_encode = msgspec.json.Encoder().encode


class UnreadableAnswerError(ValueError):
    """An extender's answer does not have the form of its verb's result."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the answer cannot be read: {what}")


class _Answer(msgspec.Struct, rename=lambda name: name.replace("_", "")):
    """Base of answers, whose keys are folded to lower case before they are read."""


class _Metadata(msgspec.Struct):
    name: str = ""


class _Node(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _NodeList(msgspec.Struct):
    items: list[_Node] | None = None


class _FilterResult(_Answer):
    nodes: _NodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str | None = None


class _HostPriority(_Answer):
    host: str = ""
    score: _Int64 = 0


class _BindingResult(_Answer):
    error: str | None = None


class _MetaPod(_Answer):
    uid: str = ""


class MetaVictims(_Answer):
    """Victims of one node in an extender's answer, by UID. A UID that is named several times counts once."""

    pods: list[_MetaPod] | None = None
    num_pdb_violations: _Int64 = 0

    def uids(self) -> list[str]:
        return list(dict.fromkeys(pod.uid for pod in self.pods or ()))


# -- requests ----------------------------------------------------------------------------------------------


def node_request(pod: bytes, names: Iterable[str] | None, nodes: Iterable[bytes] | None) -> bytes:
    """Encode ``ExtenderArgs`` of filter and prioritize, with either node names or node objects (JSON)."""
    listed = None if nodes is None else {"metadata": {}, "items": [msgspec.Raw(node) for node in nodes]}
    return _encode({"Pod": msgspec.Raw(pod), "Nodes": listed, "NodeNames": None if names is None else list(names)})


def bind_request(pod: PodInfo, node_name: str) -> bytes:
    """Encode ``ExtenderBindingArgs``."""
    return _encode({"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node_name})


def preempt_request(pod: bytes, victims: Mapping[str, Victims], documents: Mapping[str, bytes] | None) -> bytes:
    """Encode ``ExtenderPreemptionArgs``. ``documents`` are victims as JSON by UID; None: send only UIDs."""
    whole = meta = None
    if documents is None:
        meta = {
            name: {"Pods": [{"UID": pod.uid} for pod in found.pods], "NumPDBViolations": found.pdb_violations}
            for name, found in victims.items()
        }
    else:
        whole = {
            name: {
                "Pods": [msgspec.Raw(documents[pod.uid]) for pod in found.pods],
                "NumPDBViolations": found.pdb_violations,
            }
            for name, found in victims.items()
        }
    return _encode({"Pod": msgspec.Raw(pod), "NodeNameToVictims": whole, "NodeNameToMetaVictims": meta})


# -- answers -----------------------------------------------------------------------------------------------


def filter_answer(body: bytes, *, node_cache_capable: bool) -> FilterAnswer:
    """Decode ``ExtenderFilterResult``.

    Raises:
        UnreadableAnswerError: when the body is no such object.
        ExtenderError: when the result holds an error.
    """
    result = _read(body, _FilterResult)
    if result.error:
        raise ExtenderError(result.error)
    names: list[str] = []
    if node_cache_capable and result.node_names is not None:
        names = result.node_names
    elif result.nodes is not None:
        names = [node.metadata.name for node in result.nodes.items or ()]
    return FilterAnswer(names, result.failed_nodes or {}, result.failed_and_unresolvable_nodes or {})


def score_answer(body: bytes) -> dict[str, int]:
    """Decode ``HostPriorityList`` to scores by node name. Several scores of one host add up, as upstream.

    Raises:
        UnreadableAnswerError: when the body is no such list.
    """
    scores: dict[str, int] = {}
    for item in _read(body, list[_HostPriority], empty=[]):
        scores[item.host] = scores.get(item.host, 0) + item.score
    return scores


def refusal(body: bytes) -> str:
    """Decode ``ExtenderBindingResult`` to the reason why the pod was not bound, empty if it was bound.

    Raises:
        UnreadableAnswerError: when the body is no such object.
    """
    return _read(body, _BindingResult).error or ""


def preempt_answer(body: bytes) -> dict[str, MetaVictims | None]:
    """Decode ``ExtenderPreemptionResult`` to victims by node name.

    Raises:
        UnreadableAnswerError: when the body is no such object.
    """
    # Only the outer keys are folded here: below them are names of nodes, which keep their case.
    found = _read(body, dict[str, Any]).get("nodenametometavictims")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise UnreadableAnswerError("NodeNameToMetaVictims is not an object")
    return {name: None if value is None else _convert_folded(value, MetaVictims) for name, value in found.items()}


def _read(body: bytes, type_: Any, empty: Any = None) -> Any:
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableAnswerError(f"not valid JSON: {error}") from None
    except RecursionError:
        raise UnreadableAnswerError("too many objects within objects") from None
    if data is None:
        data = {} if empty is None else empty
    if type_ == dict[str, Any]:
        return _convert({key.lower(): value for key, value in data.items()} if isinstance(data, dict) else data, type_)
    if type_ is _FilterResult and isinstance(data, dict):
        # Only the outer keys are folded: below them are names of nodes, which keep their case.
        return _convert({key.lower(): value for key, value in data.items()}, type_)
    return _convert_folded(data, type_)


def _convert_folded(data: Any, type_: type[T]) -> T:
    try:
        folded = _folded(data)
    except RecursionError:
        raise UnreadableAnswerError("too many objects within objects") from None
    return _convert(folded, type_)


def _convert(data: Any, type_: type[T]) -> T:
    try:
        return msgspec.convert(data, type_)
    except msgspec.ValidationError as error:
        raise UnreadableAnswerError(str(error)) from None


def _folded(data: Any) -> Any:
    """Fold keys to lower case, at every depth."""
    if isinstance(data, dict):
        return {key.lower(): _folded(value) for key, value in data.items()}
    return [_folded(item) for item in data] if isinstance(data, list) else data
