"""Ordinary Kubernetes manifests from files and directories, with errors that say where and what.

YAML with many documents, JSON, and ``List`` objects. Nothing is defaulted here; the store does that. Caller: the
command line and simulations; workloads are turned into pods by :mod:`.workloads`.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from ...api.decode import DecodeError, from_builtins
from ...api.kinds import KINDS, Kind, kind_of

__all__ = ["KubernetesYaml", "Manifest", "ManifestError", "Manifests", "deep_line", "load_manifests", "parse_manifests"]

_SUFFIXES = (".yaml", ".yml", ".json")

_MAX_DEPTH = 100
_TOO_DEEP = f"nested more than {_MAX_DEPTH} levels deep"
#: How many nodes the aliases of a document may stand for.
_MAX_ALIASED = 1_000_000
#: With fewer opening marks than this, no text is nested deep enough to exhaust the stack.
_SUSPICIOUS = 2_000
#: One list right within another, on one line.
_DASHES: Final = re.compile("- +(?=-)")


class ManifestError(ValueError):
    """A manifest that cannot be used. The message names file, document, line, field and what would be right."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object and where it was written."""

    kind: Kind
    data: dict[str, Any]
    source: str

    @property
    def namespace(self) -> str:
        """The namespace it goes to; empty for cluster-scoped kinds."""
        if not self.kind.namespaced:
            return ""
        return self.data["metadata"].get("namespace") or "default"

    @property
    def name(self) -> str:
        """Its name; empty when the server is to generate one."""
        return self.data["metadata"].get("name") or ""


@dataclass(slots=True)
class Manifests:
    """What was loaded, and what was left out and why."""

    objects: list[Manifest] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class KubernetesYaml(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: timestamps stay text, no base-60 numbers, no key twice."""


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """The implicit types without timestamps and without base-60 integers and floats."""
    kept: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    number = re.compile(r"^[-+]?(?:0b[0-1_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|(?:0|[1-9][0-9_]*))$")
    decimal = re.compile(
        r"^[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|\.inf)$"
    )
    for letter, rules in yaml.CSafeLoader.yaml_implicit_resolvers.items():
        kept[letter] = []
        for tag, pattern in rules:
            if tag.endswith(":timestamp"):
                continue
            if tag.endswith(":int"):
                pattern = number  # noqa: PLW2901 - the rule is replaced, not the loop
            elif tag.endswith(":float"):
                pattern = decimal  # noqa: PLW2901
            kept[letter].append((tag, pattern))
    return kept


KubernetesYaml.yaml_implicit_resolvers = _resolvers()


_STANDARD_INPUT: Final = Path("-")


def load_manifests(paths: Iterable[str | Path]) -> Manifests:
    """Read files, and the ``.yaml``, ``.yml`` and ``.json`` files below directories, in name order; ``-`` is standard input.

    Objects of unknown kinds are left out with a warning.

    Raises:
        ManifestError: for a path that does not exist, text that does not parse, an object without kind or name, a
            field of the wrong type, or the same object twice (both places are named).
    """
    result = Manifests()
    places: dict[tuple[str, str, str], str] = {}
    for path in _files(paths):
        try:
            text = sys.stdin.read() if path == _STANDARD_INPUT else path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ManifestError(f"{path}: cannot be read: {error}") from None
        _add(result, places, parse_manifests(text, str(path)))
    return result


def _files(paths: Iterable[str | Path]) -> list[Path]:
    files: list[Path] = []
    for given in paths:
        path = Path(given)
        if path.is_dir():
            files += sorted(item for item in path.rglob("*") if item.suffix in _SUFFIXES and item.is_file())
        elif path.exists() or path == _STANDARD_INPUT:
            files.append(path)
        else:
            raise ManifestError(f"{path}: there is no such file or directory")
    return files


def _add(result: Manifests, places: dict[tuple[str, str, str], str], found: Manifests) -> None:
    result.warnings += found.warnings
    for item in found.objects:
        if item.name:
            key = (item.kind.group_resource, item.namespace, item.name)
            if key in places:
                name = f"{item.namespace}/{item.name}" if item.namespace else item.name
                raise ManifestError(
                    f"{item.source}: {item.kind.kind} {name} was defined already in {places[key]}; "
                    "give one of them another name or namespace"
                )
            places[key] = item.source
        result.objects.append(item)


def parse_manifests(text: str, source: str = "<text>") -> Manifests:
    """Read the documents of one text; ``source`` is its name in messages.

    Raises:
        ManifestError: see :func:`load_manifests`.
    """
    result = Manifests()
    if source.endswith(".json"):
        try:
            documents: list[tuple[Any, yaml.Node | None]] = [(msgspec.json.decode(text), None)]
        except msgspec.DecodeError as error:
            raise ManifestError(f"{source}: not valid JSON: {error}") from None
        except RecursionError:
            raise ManifestError(f"{source}: nested too deep") from None
    else:
        documents = _yaml_documents(text, source)
    single = Manifests()
    for number, (data, node) in enumerate(documents, 1):
        if data is not None:
            _read(single, data, node, f"{source}: document {number}")
    _add(result, {}, single)
    return result


def _yaml_documents(text: str, source: str) -> list[tuple[Any, yaml.Node | None]]:
    documents: list[tuple[Any, yaml.Node | None]] = []
    _refuse_deep_text(text, source)
    loader = KubernetesYaml(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                _Shape(f"{source}: document {len(documents) + 1}").check(node)
            documents.append((loader.construct_document(node), node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise ManifestError(f"{source}: document {len(documents) + 1}{line}: not valid YAML: {error.problem}") from None
    except ManifestError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise ManifestError(f"{source}: document {len(documents) + 1}: not valid YAML: {error}") from None
    finally:
        loader.dispose()
    return documents


def _refuse_deep_text(text: str, source: str) -> None:
    line = deep_line(text, _MAX_DEPTH)
    if line:
        raise ManifestError(f"{source}: line {line}: {_TOO_DEEP}")


def deep_line(text: str, limit: int) -> int:
    """The line where YAML nests deeper than ``limit``; 0 when the parser, which recurses in C, survives the text.

    It is for finding what would exhaust the stack: text that cannot be that deep is not looked at, and costs nothing.
    By indentation alone depth grows with the square root of the size, so that only what nests on one line counts.
    """
    openers = sum(text.count(opener) for opener in ("[", "{", "? "))
    if openers < _SUSPICIOUS and openers + sum(1 for _ in _DASHES.finditer(text)) < _SUSPICIOUS:
        return 0
    depth = 0
    try:
        for event in yaml.parse(text, Loader=KubernetesYaml):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > limit:
                    mark = event.start_mark
                    return mark.line + 1 if mark is not None else 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.YAMLError:
        return 0  # told with its place when the text is read
    return 0


class _Shape:
    """Refuses what YAML allows and no manifest is: a key twice, a value within itself, nesting or aliases without end."""

    def __init__(self, where: str) -> None:
        self._where = where
        #: Node to the number of nodes it stands for; 0 while it is being looked at.
        self._sizes: dict[int, int] = {}
        self._aliased = 0

    def check(self, node: yaml.Node, depth: int = 0) -> int:
        """Look at a node and what is below it; the number of nodes it stands for, aliases spelled out."""
        if not isinstance(node, yaml.CollectionNode):
            return 1
        size = self._sizes.get(id(node))
        if size is not None:
            self._aliased += size
            if size == 0:
                raise self._problem(node, "a value contains itself through an alias")
            if self._aliased > _MAX_ALIASED:
                raise self._problem(node, "aliases make this document too large")
            return size
        if depth >= _MAX_DEPTH:
            raise self._problem(node, _TOO_DEEP)
        self._sizes[id(node)] = 0
        if isinstance(node, yaml.MappingNode):
            self._refuse_double_keys(node)
            children = [child for pair in node.value for child in pair]
        else:
            children = node.value
        size = self._sizes[id(node)] = 1 + sum(self.check(child, depth + 1) for child in children)
        return size

    def _refuse_double_keys(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise self._problem(key, f"key {key.value!r} is given twice; keep one of them")
                seen.add(key.value)

    def _problem(self, node: yaml.Node, what: str) -> ManifestError:
        return ManifestError(f"{self._where}, line {node.start_mark.line + 1}: {what}")


def _read(result: Manifests, data: Any, node: yaml.Node | None, where: str) -> None:
    """Check one document and add its object or objects."""
    at = f"{where}, line {_line(node)}" if node is not None else where
    if not isinstance(data, dict):
        raise ManifestError(f"{at}: expected an object with apiVersion and kind, found {_noun(data)}")
    for name in ("apiVersion", "kind"):
        if not isinstance(data.get(name), str) or not data[name]:
            example = "apiVersion: v1" if name == "apiVersion" else "kind: Pod"
            raise ManifestError(f"{at}: {name} is missing; write for example `{example}`")
    if data["kind"].endswith("List") and isinstance(data.get("items"), list | None):
        _read_list(result, data, node, where)
        return
    kind = kind_of(data["apiVersion"], data["kind"])
    if kind is None:
        result.warnings.append(f"{at}: left out: {data['apiVersion']} {data['kind']} is not known here{_hint(data)}")
        return
    metadata = data.get("metadata")
    if not isinstance(metadata, dict):
        raise ManifestError(f"{at}: metadata is missing; write `metadata:` with a `name:`")
    if not (metadata.get("name") or metadata.get("generateName")):
        raise ManifestError(
            f"{where}, line {_line(node, 'metadata')}: metadata.name is missing; give the {kind.kind} a name"
        )
    for name in ("name", "namespace", "generateName"):
        if not isinstance(metadata.get(name), str | None):
            line = _line(node, "metadata", name)
            raise ManifestError(f"{where}, line {line}: metadata.{name}: must be a string, write it in quotes")
    if kind.type is not None:
        _check_types(kind, data, node, where)
    result.objects.append(Manifest(kind, data, at))


def _read_list(result: Manifests, data: dict[str, Any], node: yaml.Node | None, where: str) -> None:
    items = data.get("items") or []
    nodes = _child(node, "items")
    children = nodes.value if isinstance(nodes, yaml.SequenceNode) else [None] * len(items)
    for index, (item, child) in enumerate(zip(items, children, strict=True)):
        if isinstance(item, dict) and data["kind"] != "List":
            # The items of a typed list (PodList) may leave out what the list says already.
            item.setdefault("apiVersion", data["apiVersion"])
            item.setdefault("kind", data["kind"].removesuffix("List"))
        _read(result, item, child, f"{where}, items[{index}]")


_PATH_PART = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")


def _check_types(kind: Kind, data: dict[str, Any], node: yaml.Node | None, where: str) -> None:
    """Refuse fields of the wrong type, showing the line where the value stands."""
    assert kind.type is not None
    try:
        from_builtins(data, kind.type)
    except DecodeError as error:
        message, _, path = str(error).partition(" - at `$")
        path = path.removesuffix("`")
        parts = [int(match[2]) if match[2] is not None else match[1] or "..." for match in _PATH_PART.finditer(path)]
        line = f", line {_line(node, *parts)}" if node is not None else ""
        raise ManifestError(
            f"{where}{line}: {path.lstrip('.') or 'the object'}: {message[:1].lower()}{message[1:]}"
        ) from None


def _child(node: yaml.Node | None, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        child: yaml.Node = node.value[part]
        return child
    return None


def _line(node: yaml.Node | None, *path: str | int) -> int:
    """The line of the deepest node of a path that exists, counted from 1."""
    line = 0 if node is None else node.start_mark.line
    for part in path:
        node = _child(node, part)
        if node is None:
            break
        line = node.start_mark.line
    return line + 1


def _noun(data: Any) -> str:
    return "a list" if isinstance(data, list) else f"{data!r}"


def _hint(data: Mapping[str, Any]) -> str:
    """Another version of the same kind, or the nearest spelling."""
    same = [kind for kind in KINDS if kind.kind == data["kind"]]
    if same:
        return f"; did you mean apiVersion {' or '.join(kind.api_version for kind in same)}?"
    near = difflib.get_close_matches(data["kind"], [kind.kind for kind in KINDS], n=1)
    return f"; did you mean {near[0]}?" if near else ""
