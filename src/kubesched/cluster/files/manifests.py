"""Ordinary Kubernetes manifests from files and directories, with errors that name the place and the problem.

YAML with many documents, JSON, and ``List`` objects. Nothing is defaulted here; the store does that. Caller: the
command line and simulations; workloads are turned into pods by :mod:`.workloads`.
"""

from __future__ import annotations

import codecs
import difflib
import gzip
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from kubesched.api.decode import DecodeError, from_builtins, to_builtins
from kubesched.api.document_stream import readable_documents
from kubesched.api.documents import Document, TextError
from kubesched.api.kinds import KINDS, Kind, kind_of

from ..schema import stored_form

__all__ = [
    "Manifest",
    "ManifestError",
    "Manifests",
    "load_manifests",
    "manifest_files",
    "object_manifests",
    "parse_manifests",
    "read_text",
]

#: Most bad objects that one error lists.
_MOST_PROBLEMS: Final = 50
_NOT_RENDERED: Final = "; a template must be rendered first, for example by `helm template`"
_SUFFIXES = (".yaml", ".yml", ".json")
_GZIP: Final = b"\x1f\x8b"


class ManifestError(ValueError):
    """Manifests that cannot be used. The message names file, document, line, field and a correct form.

    One error may be about many objects: one line for each of the first ones. ``problems`` has all of them.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        shown = [*problems[:_MOST_PROBLEMS]]
        if len(problems) > _MOST_PROBLEMS:
            shown.append(f"and {len(problems) - _MOST_PROBLEMS:,} more")
        super().__init__("\n".join(shown))


@dataclass(frozen=True, slots=True)
class Manifest:
    """Object and the place where it was written."""

    kind: Kind
    data: dict[str, Any]
    source: str

    @property
    def namespace(self) -> str:
        """Namespace that the object is created in; empty for cluster-scoped kinds."""
        if not self.kind.namespaced:
            return ""
        return self.data["metadata"].get("namespace") or "default"

    @property
    def name(self) -> str:
        """Name of the object; empty when the server is to generate one."""
        return self.data["metadata"].get("name") or ""


@dataclass(slots=True)
class Manifests:
    """Objects that were loaded, with warnings and problems."""

    objects: list[Manifest] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    #: Problems of unusable objects, for callers that go on and report them together with others.
    problems: list[str] = field(default_factory=list)
    #: While reading: places of objects that are left out, by remark.
    left_out: dict[str, list[str]] = field(default_factory=dict)
    #: While reading: places of the objects, by kind, namespace and name.
    places: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def add(self, item: Manifest) -> None:
        """Add an object that was read. A second object of the same name is a problem."""
        key = (item.kind.group_resource, item.namespace, item.name)
        if item.name and key in self.places:
            name = f"{item.namespace}/{item.name}" if item.namespace else item.name
            self.problems.append(
                f"{item.source}: {item.kind.kind} {name} was defined already in {self.places[key]}; "
                "give one of them another name or namespace"
            )
        else:
            self.places[key] = item.source
            self.objects.append(item)

    def extend(self, more: Manifests) -> None:
        """Add the objects and remarks of other manifests."""
        self.objects += more.objects
        self.warnings += more.warnings
        self.problems += more.problems

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Context in which a :class:`ManifestError` is added to the problems instead of being raised."""
        try:
            yield
        except ManifestError as error:
            self.problems += error.problems

    def close(self, *, lenient: bool = False) -> Manifests:
        """Turn each remark about left-out objects into one warning that names all places.

        Raises:
            ManifestError: when there are problems, unless ``lenient``.
        """
        if self.problems and not lenient:
            raise ManifestError(*self.problems)
        for text, places in self.left_out.items():
            more = f" (and {len(places) - 1:,} more like it)" if len(places) > 1 else ""
            self.warnings.append(f"{places[0]}: {text}{more}")
        self.left_out = {}
        return self


_STANDARD_INPUT: Final = Path("-")


def load_manifests(paths: Iterable[str | Path], *, lenient: bool = False) -> Manifests:
    """Read files, and the manifests below directories in name order; ``-`` is standard input.

    Manifests below a directory end in ``.yaml``, ``.yml`` or ``.json``.

    Files may be gzipped, or in UTF-16. Objects of unknown kinds are left out with a warning, and so are files below
    directories that hold no objects. With ``lenient`` no error is raised: the result has the ``problems``, and the
    objects that can be used.

    Raises:
        ManifestError: for a path that does not exist, text that does not parse, an object without kind or name, a
            field of the wrong type, or a repeated object (both places are named). One error names all problems of all
            files.
    """
    result = Manifests()
    for path, named in manifest_files(paths, result.problems):
        known = len(result.problems)
        with result.collecting():
            text = sys.stdin.read() if path == _STANDARD_INPUT else read_text(path)
            _parse(result, text, str(path))
            if len(result.problems) > known and not named and _is_other_file(text):
                result.problems[known:] = []
                result.warnings.append(f"{path}: left out: it holds no Kubernetes objects")
    return result.close(lenient=lenient)


def manifest_files(paths: Iterable[str | Path], problems: list[str]) -> list[tuple[Path, bool]]:
    """Return the files of some paths, each with True if it was named itself. Files of a directory are in name order.

    Paths that do not exist are added to ``problems``.
    """
    files: list[tuple[Path, bool]] = []
    for given in paths:
        path = Path(given)
        if path.is_dir():
            found = (item for item in path.rglob("*") if item.is_file())
            files += [(one, False) for one in sorted(found) if Path(one.name.removesuffix(".gz")).suffix in _SUFFIXES]
        elif path.exists() or path == _STANDARD_INPUT:
            files.append((path, True))
        else:
            known = "; `kubesched examples` copies the examples to here" if path.parts[:1] == ("examples",) else ""
            problems.append(f"{path}: there is no such file or directory{known}")
    return files


def read_text(path: Path) -> str:
    """Return the text of a file in UTF-8, or in UTF-16 with a byte order mark as PowerShell writes it; also gzipped.

    Raises:
        ManifestError: when it cannot be read.
    """
    try:
        raw = path.read_bytes()
        if raw.startswith(_GZIP):
            raw = gzip.decompress(raw)
        wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return raw.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        place = f"{path}: line {line}" if error.encoding == "utf-8" else path
        text = f"byte {error.object[error.start]:#04x} is no text in {error.encoding.upper()}"
        raise ManifestError(f"{place}: cannot be read: {text}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ManifestError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _is_other_file(text: str) -> bool:
    """True if none of the documents of a file in a directory is an object, as in a chart's values.

    A text that does not parse gives False, so that its error is reported.
    """
    unreadable: list[TextError] = []
    data = [document.data for document in readable_documents(text, "", unreadable) if document.data is not None]
    return (
        not unreadable
        and bool(data)
        and not any(isinstance(one, dict) and ("kind" in one or "spec" in one) for one in data)
    )


def parse_manifests(text: str, source: str = "<text>", *, lenient: bool = False) -> Manifests:
    """Read the documents of one text; ``source`` is its name in messages, ``lenient`` as for :func:`load_manifests`.

    Raises:
        ManifestError: see :func:`load_manifests`.
    """
    result = Manifests()
    _parse(result, text, source)
    return result.close(lenient=lenient)


def object_manifests(data: Any, source: str, *, lenient: bool = False) -> Manifests:
    """Read one object, or a ``List``, from plain data, which is copied; ``source`` is its name in messages.

    ``lenient`` is as for :func:`load_manifests`.

    Raises:
        ManifestError: see :func:`load_manifests`; also for values that JSON does not have.
    """
    try:
        copy = to_builtins(data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return Manifests(problems=[f"{source}: is no plain data: {error}"]).close(lenient=lenient)
    result = Manifests()
    _read_one(result, copy, _Place(Document(copy), (), source))
    return result.close(lenient=lenient)


def _parse(result: Manifests, text: str, source: str) -> None:
    """Add the objects of one text, and the problems of unusable ones."""
    unreadable: list[TextError] = []
    for document in chain(readable_documents(text, source, unreadable), [Document()]):
        hint = _NOT_RENDERED if unreadable and "{{" in text else ""
        result.problems += [error.in_file(source) + hint for error in unreadable]
        unreadable.clear()
        if document.data is not None:
            number = f": document {document.number}" if document.number else ""
            _read_one(result, document.data, _Place(document, (), source + number))


@dataclass(frozen=True, slots=True)
class _Place:
    """Place where an object was written: its document, the path to it there, and both in words."""

    document: Document
    path: tuple[str | int, ...]
    text: str

    def at(self, *path: str | int) -> str:
        """Return the place in words. It names the line of a member, or of the object, if lines are known."""
        line = self.document.line_of(*self.path, *path)
        return f"{self.text}, line {line}" if line else self.text


def _read_one(result: Manifests, data: Any, place: _Place) -> None:
    with result.collecting():
        _read(result, data, place)


def _read(result: Manifests, data: Any, place: _Place) -> None:
    """Check one document and add its object or objects."""
    if not isinstance(data, dict):
        found = "a list" if isinstance(data, list) else repr(data)
        raise ManifestError(f"{place.at()}: expected an object with apiVersion and kind, found {found}")
    for name in ("apiVersion", "kind"):
        if not isinstance(data.get(name), str) or not data[name]:
            example = "apiVersion: v1" if name == "apiVersion" else "kind: Pod"
            raise ManifestError(f"{place.at()}: {name} is missing; write for example `{example}`")
    if data["kind"].endswith("List") and isinstance(data.get("items"), list | None):
        _read_list(result, data, place)
        return
    kind = kind_of(data["apiVersion"], data["kind"])
    if kind is None:
        what = f"{data['apiVersion']} {data['kind']}"
        result.left_out.setdefault(f"left out: {what} is not known here{_hint(data)}", []).append(place.at())
        return
    metadata = data.get("metadata")
    if metadata is None:
        raise ManifestError(f"{place.at()}: metadata is missing; write `metadata:` with a `name:`")
    if not isinstance(metadata, dict):
        text = f"{place.at('metadata')}: metadata: found {repr(metadata)[:_MOST_SHOWN]}"
        raise ManifestError(f"{text}; write `metadata:` with a `name:`")
    for name in ("name", "namespace", "generateName"):
        if not isinstance(metadata.get(name), str | None):
            raise ManifestError(f"{place.at('metadata', name)}: metadata.{name}: must be a string, write it in quotes")
    if not (metadata.get("name") or metadata.get("generateName")):
        raise ManifestError(f"{place.at('metadata')}: metadata.name is missing; give the {kind.kind} a name")
    if "{{" in (metadata.get("name") or ""):
        text = f"metadata.name: {metadata['name']!r} is no name{_NOT_RENDERED}"
        raise ManifestError(f"{place.at('metadata', 'name')}: {text}")
    data = dict(stored_form(kind, data))
    if kind.type is not None:
        _check_types(kind, data, place)
    result.add(Manifest(kind, data, place.at()))


def _read_list(result: Manifests, data: dict[str, Any], place: _Place) -> None:
    for index, item in enumerate(data.get("items") or []):
        if isinstance(item, dict) and data["kind"] != "List":
            # Items of a typed list (PodList) may leave out members that the list has.
            item.setdefault("apiVersion", data["apiVersion"])
            item.setdefault("kind", data["kind"].removesuffix("List"))
        at = _Place(place.document, (*place.path, "items", index), f"{place.text}, items[{index}]")
        _read_one(result, item, at)


#: Names of types in messages about values of a wrong type.
_TYPES: Final = {int: "int", float: "float", bool: "bool", str: "str", list: "array", dict: "object"}
_MOST_SHOWN: Final = 80
_PATH_PART = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")


def _check_types(kind: Kind, data: dict[str, Any], place: _Place) -> None:
    """Refuse fields of the wrong type, naming the line of the value."""
    assert kind.type is not None
    try:
        from_builtins(data, kind.type)
    except DecodeError as error:
        message, _, path = str(error).partition(" - at `$")
        path = path.removesuffix("`")
        parts = [int(match[2]) if match[2] is not None else match[1] or "..." for match in _PATH_PART.finditer(path)]
        field_path = path.lstrip(".") or "the object"
        if (
            path.endswith("[...]") and path.count("[...]") == 1 and (entry := _wrong_entry(data, parts[:-1], message))
        ):  # the error has no key
            parts[-1] = entry[0]
            field_path = f"{field_path.removesuffix('[...]')}[{entry[0]!r}]"
            message += f": {repr(entry[1])[:_MOST_SHOWN]}"
        raise ManifestError(f"{place.at(*parts)}: {field_path}: {message[:1].lower()}{message[1:]}") from None


def _wrong_entry(data: Any, path: Iterable[str | int], message: str) -> tuple[str, Any] | None:
    """Return key and value of the first entry of a mapping that has the type that the message says it got."""
    for part in path:
        data = data[part]
    found = ((key, value) for key, value in data.items() if message.endswith(f"got `{_TYPES.get(type(value))}`"))
    return next(found, None)


def _hint(data: Mapping[str, Any]) -> str:
    """Return a hint at another version of the kind, or at the nearest spelling."""
    same = [kind for kind in KINDS if kind.kind == data["kind"]]
    if same:
        return f"; did you mean apiVersion {' or '.join(kind.api_version for kind in same)}?"
    near = difflib.get_close_matches(data["kind"], [kind.kind for kind in KINDS], n=1)
    return f"; did you mean {near[0]}?" if near else ""
