"""Request bodies: size, media type, JSON and YAML with positions, and keys that come twice.

Caller: the verb modules. Unknown fields are found by :mod:`.fieldcheck`.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec
import yaml

from ...api.wire import ApiError
from ..files import KubernetesYaml, deep_line
from ..schema import encode
from .protobuf import PROTOBUF, decode_protobuf

__all__ = ["MAX_BODY", "Body", "decode_body", "media_type"]

#: Upstream's limit for a JSON body.
MAX_BODY: Final = 3 * 1024 * 1024
_MAX_DEPTH: Final = 200
_MAX_NODES: Final = 200_000
_YAML: Final = frozenset({"application/yaml", "text/yaml", "application/x-yaml", "application/apply-patch+yaml"})
_POSITION: Final = re.compile(r"\(byte (\d+)\)")
_SPACED_KEY: Final = re.compile(rb'"\s+:')


class Body:
    """A decoded body and the paths of keys that came twice."""

    __slots__ = ("data", "duplicates")

    def __init__(self, data: Any, duplicates: list[str]) -> None:
        self.data = data
        self.duplicates = duplicates


def media_type(content_type: str, default: str = "application/json") -> str:
    """The media type of a Content-Type header, without parameters."""
    return content_type.split(";", 1)[0].strip().lower() or default


def unsupported(content_type: str, accepted: tuple[str, ...]) -> ApiError:
    text = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {text}"
    return ApiError(415, "UnsupportedMediaType", message)


def decode_body(raw: bytes, content_type: str) -> Body:
    """Plain data of a JSON or YAML body.

    Raises:
        ApiError: 415 for another media type, 400 with the position for text that does not parse.
    """
    kind = media_type(content_type)
    if kind in ("application/json", "*/*") or kind.endswith("+json"):
        return _json(raw)
    if kind in _YAML:
        return _yaml(raw)
    if kind == PROTOBUF:
        return Body(decode_protobuf(raw), [])
    raise unsupported(content_type, ("application/json", "application/yaml", PROTOBUF))


class _TwiceError(Exception):
    """Raised by the pair hook at a key that comes twice; the slow way then finds its path."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _TwiceError
    return found


_decoder = json.JSONDecoder(object_pairs_hook=_once)


def _json(raw: bytes) -> Body:
    try:
        data = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise _cannot_parse(raw, error) from None
    except RecursionError:
        raise ApiError.bad_request("the body is nested too deeply") from None
    members = _count_members(data)
    # Every key is followed by a colon. When there are no more of those than members, no key came twice; texts may hold
    # such a pair of letters too, so only then is a second look needed.
    if raw.count(b'":') == members and _SPACED_KEY.search(raw) is None:
        return Body(data, [])
    try:
        _decoder.decode(raw.decode("utf-8"))
    except _TwiceError:
        return Body(data, _duplicates(raw.decode("utf-8")))
    except (ValueError, RecursionError):
        return Body(data, [])  # what one parser takes and the other does not holds no key twice worth a word
    return Body(data, [])


def _cannot_parse(raw: bytes, error: msgspec.DecodeError) -> ApiError:
    """400, with line and column for people."""
    text = str(error)
    found = _POSITION.search(text)
    if found is not None:
        before = raw[: int(found[1])]
        line, column = before.count(b"\n") + 1, len(before) - (before.rfind(b"\n") + 1) + 1
        text += f", line {line}, column {column}"
    elif not raw.strip():
        text = "the body is empty"
    return ApiError.bad_request(f"couldn't get version/kind; json parse error: {text}")


def _duplicates(text: str) -> list[str]:
    """The paths of keys that come twice, in upstream's words."""
    found: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        twice = []
        for key, value in items:
            if key in result and key not in twice:
                twice.append(key)
            result[key] = value
        if twice:
            result["\0twice"] = twice
        return result

    _collect(json.JSONDecoder(object_pairs_hook=pairs).decode(text), "", found)
    return found


def _collect(data: Any, path: str, found: list[str]) -> None:
    if isinstance(data, dict):
        found += [f"{path}{key}" for key in data.pop("\0twice", ())]
        for key, value in data.items():
            _collect(value, f"{path}{key}.", found)
    elif isinstance(data, list):
        for index, item in enumerate(data):
            _collect(item, f"{path[:-1]}[{index}].", found)


def _yaml(raw: bytes) -> Body:
    try:
        text = raw.decode("utf-8")
        line = deep_line(text, _MAX_DEPTH)
        if line:
            raise yaml.YAMLError(f"line {line}: nested more than {_MAX_DEPTH} levels deep")
        loader = KubernetesYaml(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return Body(None, [])
            walk = _YamlWalk()
            walk.visit(node, "")
            data = msgspec.json.decode(encode(loader.construct_document(node)))
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        text = " ".join(str(error).split())
        raise ApiError.bad_request(f"error converting YAML to JSON: yaml: {text}") from None
    except (UnicodeDecodeError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise ApiError.bad_request(f"error converting YAML to JSON: yaml: {error}") from None
    _count_members(data)  # for its depth
    return Body(data, walk.duplicates)


class _YamlWalk:
    """Looks at every node once: keys that come twice, and how much aliases would blow a small text up to."""

    def __init__(self) -> None:
        self.duplicates: list[str] = []
        self._nodes = 0

    def visit(self, node: Any, path: str, depth: int = 0) -> None:
        self._nodes += 1
        too_deep = depth >= _MAX_DEPTH and isinstance(node, yaml.CollectionNode)
        if too_deep or self._nodes > _MAX_NODES:
            raise yaml.YAMLError("the document is too large or nested too deeply")
        if isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.YAMLError(f"line {key.start_mark.line + 1}: a key must be text, not a list or an object")
                name = str(key.value)
                if name in keys:
                    self.duplicates.append(f"{path}{name}")
                keys.add(name)
                self.visit(value, f"{path}{name}.", depth + 1)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.visit(item, f"{path[:-1]}[{index}].", depth + 1)


def _count_members(data: Any, depth: int = 0) -> int:
    """How many members all objects in ``data`` have together.

    Raises:
        ApiError: 400, when it is nested too deeply.
    """
    if isinstance(data, dict):
        count, values = len(data), list(data.values())
    elif isinstance(data, list):
        count, values = 0, data
    else:
        return 0
    if depth >= _MAX_DEPTH:
        raise ApiError.bad_request(f"the body is nested deeper than {_MAX_DEPTH} levels")
    for value in values:
        if isinstance(value, dict | list):
            count += _count_members(value, depth + 1)
    return count
