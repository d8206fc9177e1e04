"""Reader and writer of YAML and JSON text, with one set of rules for every file and request.

The rules are those of upstream's reader: ``1e3`` is a number, a date is a string, ``12:30`` is a string, ``yes`` is
true; keys become text; no value contains itself. There are at most :data:`MAX_DEPTH` levels, and aliases may repeat at
most :data:`MAX_ALIASED` values. Duplicate keys are reported with line and path. A configuration and a request name them
in upstream's words; other files are refused (:meth:`Document.refuse_duplicates`).

The code reads the parser's events instead of PyYAML's ready-made objects: that gives line numbers, and limits without
recursion. Callers: all that read a file or a request body.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

import yaml
from yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from kubesched.base.turns import Steps, finish

from .documents import MAX_DEPTH, MAX_DUPLICATES, TOO_DEEP, Document, Duplicate, TextError, TooManyValuesError
from .jsontext import parse_json

__all__ = [
    "CONTROLS",
    "MAX_DEPTH",
    "Document",
    "Duplicate",
    "TextError",
    "as_text",
    "json_number",
    "parse_documents",
    "parse_json",
    "parse_single",
    "parsing_single",
    "read_documents",
    "read_single",
    "resolve_plain",
    "to_yaml",
]

#: Most values that the aliases of a document may expand to, against a "billion laughs" file.
MAX_ALIASED: Final = 200_000
#: Parser events in one step, which take about ten milliseconds.
_EVENTS_AT_ONCE: Final = 1_000
_TAG: Final = "tag:yaml.org,2002:"
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INTEGER: Final = re.compile(
    r"[-+]?(?:0b(?P<bin>[01]+)|0x(?P<hex>[0-9a-fA-F]+)|0o?(?P<oct>[0-7]+)|(?P<dec>0|[1-9][0-9]*))\Z"
)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_BASES: Final = {"bin": 2, "hex": 16, "oct": 8, "dec": 10}
#: A decimal number with fewer digits fits into 64 bits.
_SHORT: Final = 19
_NUMERIC_START: Final = frozenset("+-.0123456789")
_CONTROL: Final = yaml.reader.Reader.NON_PRINTABLE
#: Problem of a text with characters that YAML does not allow.
CONTROLS: Final = "control characters are not allowed"


def resolve_plain(text: str) -> Any:
    """Return the meaning of an unquoted scalar: None, bool, int, float or the text itself.

    As in upstream's reader, integers beyond 64 bits become floats.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC_START:
        return text
    if len(text) < _SHORT and text.isdecimal() and text.isascii() and (text[0] != "0" or len(text) == 1):
        return int(text)
    digits = text.replace("_", "")
    match = _INTEGER.match(digits)
    if match:
        base = next(name for name in _BASES if match[name])
        sign = -1 if digits.startswith("-") else 1
        if len(digits) > 4 + math.log(sys.float_info.max, _BASES[base]):
            return sign * math.inf
        number = sign * int(match[base], _BASES[base])
        return number if -(2**63) <= number < 2**64 else _as_float(number)
    if _FLOAT.match(digits):
        return float(digits)
    return text


def _as_float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def json_number(number: float) -> str:
    """Write a number as JSON text. A whole float below 1e21 prints like an integer."""
    if isinstance(number, float) and number.is_integer() and abs(number) < 1e21:
        return str(int(number))
    return repr(number)


# -- YAML --------------------------------------------------------------------------------------------------

_NO_KEY: Final = object()
_MERGE: Final = object()
_OPEN: Final = object()


class _Frame:
    """List or mapping that is being read."""

    __slots__ = ("anchor", "height", "key", "line", "lines", "merged", "nodes_before", "value")

    def __init__(self, value: Any, anchor: str | None, nodes_before: int, line: int) -> None:
        self.value = value
        self.anchor = anchor
        self.nodes_before = nodes_before
        self.line = line
        #: Levels of nested collections, this one included.
        self.height = 1
        self.lines: dict[Any, int] = {}
        self.key: Any = _NO_KEY
        self.merged: list[Any] = []


def _copied(value: Any) -> Any:
    """Copy lists and mappings for an alias, so that a change in one place does not affect the other."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


class _Builder:
    """Builder of one document's plain data from parser events. ``nodes`` counts the nodes of earlier documents."""

    def __init__(self, number: int, nodes: int = 0) -> None:
        self.document = Document(number=number)
        self.stack: list[_Frame] = []
        #: For each anchor: value, number of nodes, height.
        self.anchors: dict[str, tuple[Any, int, int]] = {}
        #: Number of nodes, those of earlier documents included.
        self.nodes = nodes
        self.aliased = 0

    def following(self) -> _Builder:
        """Return the builder of the next document."""
        return _Builder(self.document.number + 1, self.nodes - self.aliased)

    def feed(self, event: Any) -> None:
        """Take the next event of the parser (a :class:`yaml.Event`)."""
        kind = type(event)
        line = event.start_mark.line + 1
        if kind is ScalarEvent:
            self.nodes += 1
            value = self._scalar(event, line)
            if event.anchor:
                self.anchors[event.anchor] = (value, 1, 0)
            self._add(value, line)
        elif kind is MappingStartEvent or kind is SequenceStartEvent:
            self._start(event, line)
        elif kind is MappingEndEvent or kind is SequenceEndEvent:
            self._end(line)
        elif kind is AliasEvent:
            self._add(self._alias(event.anchor or "", line), line)

    def _fail(self, problem: str, line: int, *details: str) -> TextError:
        return TextError(problem, line, *details, document=self.document.number)

    def _alias(self, anchor: str, line: int) -> Any:
        if anchor not in self.anchors:
            raise self._fail(f"unknown anchor '{anchor}' referenced", line)
        value, nodes, height = self.anchors[anchor]
        if value is _OPEN:
            raise self._fail(f"anchor '{anchor}' value contains itself", line)
        self.nodes += nodes
        self.aliased += nodes
        if self.aliased > MAX_ALIASED:
            raise self._fail("document contains excessive aliasing", line)
        if len(self.stack) + height > MAX_DEPTH:
            raise self._fail(TOO_DEEP, line)
        if self.stack:
            self.stack[-1].height = max(self.stack[-1].height, height + 1)
        return _copied(value)

    def _start(self, event: CollectionStartEvent, line: int) -> None:
        is_map = isinstance(event, MappingStartEvent)
        kind = "map" if is_map else "seq"
        if event.tag not in (None, "!", _TAG + kind):
            raise self._fail(f"tag {event.tag!r} is not supported here", line)
        if len(self.stack) >= MAX_DEPTH:
            raise self._fail(TOO_DEEP, line)
        if self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is _NO_KEY:
            raise self._fail(f"invalid map key: a {'map' if is_map else 'list'} cannot be a key", line)
        self.nodes += 1
        if event.anchor:
            self.anchors[event.anchor] = (_OPEN, 0, 0)
        self.stack.append(_Frame({} if is_map else [], event.anchor, self.nodes - 1, line))

    def _end(self, line: int) -> None:
        frame = self.stack.pop()
        for merged in frame.merged:
            for key, value in merged.items():
                frame.value.setdefault(key, value)
        self.document.lines[id(frame.value)] = frame.lines
        if frame.anchor:
            self.anchors[frame.anchor] = (frame.value, self.nodes - frame.nodes_before, frame.height)
        if self.stack and self.stack[-1].height <= frame.height:
            self.stack[-1].height = frame.height + 1
        self._add(frame.value, frame.line)

    def _add(self, value: Any, line: int) -> None:
        """Put a finished value where it belongs: into its list, as a key, as a key's value, or as the document."""
        if not self.stack:
            self.document.data, self.document.line = value, line
            return
        frame = self.stack[-1]
        if isinstance(frame.value, list):
            frame.lines[len(frame.value)] = line
            frame.value.append(value)
        elif frame.key is _NO_KEY:
            frame.key = value if value is _MERGE else self._key(value, frame, line)
        else:
            if frame.key is _MERGE:
                frame.merged += self._merge_sources(value, line)
            else:
                frame.lines[frame.key] = line
                frame.value[frame.key] = value
            frame.key = _NO_KEY

    def _key(self, value: Any, frame: _Frame, line: int) -> str:
        key = value if isinstance(value, str) else self._text_of(value, line)
        if key in frame.value and len(self.document.duplicates) < MAX_DUPLICATES:
            self.document.duplicates.append(Duplicate(line, key, self._path(key)))
        return key

    def _text_of(self, value: Any, line: int) -> str:
        """Return the text of a key that is not text."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, float)):
            return json_number(value)
        raise self._fail("invalid map key: write a name before the colon", line)

    def _path(self, key: str = "") -> str:
        """Return the path of ``key`` in the open mapping, or of the value that comes next."""
        text = ""
        for frame in self.stack:
            if isinstance(frame.value, list):
                text += f"[{len(frame.value)}]"
            elif frame.key is not _NO_KEY:
                text += f".{frame.key}"
        return (f"{text}.{key}" if key else text).removeprefix(".")

    def _merge_sources(self, value: Any, line: int) -> list[Any]:
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            raise self._fail("map merge requires map or sequence of maps as the value", line)
        return sources

    def _scalar(self, event: ScalarEvent, line: int) -> Any:
        text: str = event.value
        tag: str | None = event.tag
        if tag is None:
            if not event.implicit[0]:
                return text
            if text == "<<" and self.stack and self.stack[-1].key is _NO_KEY and isinstance(self.stack[-1].value, dict):
                return _MERGE
            value = resolve_plain(text)
        elif tag in ("!", _TAG + "str", _TAG + "timestamp"):
            return text
        else:
            value = self._tagged(text, tag, line)
        if isinstance(value, float) and not math.isfinite(value):
            name = "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
            path = self._path()
            detail = f"line {line}: {f'{path}: ' if path else ''}{text[:40]} is out of range"
            raise TextError(f"json: unsupported value: {name}", line, detail, document=self.document.number)
        return value

    def _tagged(self, text: str, tag: str, line: int) -> Any:
        types: dict[str, tuple[type, ...]] = {
            "int": (int,),
            "float": (int, float),
            "bool": (bool,),
            "null": (type(None),),
        }
        wanted = types.get(tag.removeprefix(_TAG))
        if wanted is None:
            raise self._fail(f"tag {tag!r} is not supported here", line)
        value = resolve_plain(text)
        if not isinstance(value, wanted):
            raise self._fail(f"cannot read {text[:40]!r} as {tag.removeprefix(_TAG)}", line)
        return value


def as_text(raw: str | bytes) -> str:
    """Return the characters of a text in UTF-8 or UTF-16, without a byte order mark.

    Raises:
        TextError: if it is neither; the message names the first wrong byte.
    """
    if isinstance(raw, str):
        return raw.removeprefix("\ufeff")
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        name = encoding.removesuffix("-sig").upper()
        raise TextError(f"invalid {name} text at byte {error.start}") from None


def _events(text: str) -> Iterator[Any]:
    """Yield the parser's events. The caller has to set the number of the document in a TextError."""
    try:
        parser: Any = _LOADER(text)
        try:
            while (event := parser.get_event()) is not None:
                yield event
        finally:
            parser.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        details = [f"{error.context} from line {error.context_mark.line + 1}"] if error.context_mark else []
        line = mark.line + 1 if mark else 0
        raise TextError(error.problem or "not readable", line, *details, format="YAML") from None
    except yaml.reader.ReaderError as error:
        found = _CONTROL.search(text)
        line = text.count("\n", 0, found.start()) + 1 if found else 0
        raise TextError(CONTROLS, line, str(error).splitlines()[0], format="YAML") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise TextError(f"not readable: {error}", format="YAML") from None


def parse_documents(raw: str | bytes, *, first: int = 1) -> Iterator[Document]:
    """Yield the documents of a YAML stream, empty ones included. The first has the number ``first``.

    If a mapping has a key that ``<<`` also brings in, the mapping's own value counts.

    Raises:
        TextError: if the text is not YAML, nested too deep, or blown up by aliases.
    """
    return (document for document in _parsing(as_text(raw), first, sys.maxsize) if document is not None)


def _parsing(text: str, first: int, most_nodes: int) -> Iterator[Document | None]:
    """Yield the documents of a YAML text, and None after some milliseconds.

    ``most_nodes`` limits the nodes of all documents together.
    """
    builder = _Builder(first)
    ended = 0
    try:
        for number, event in enumerate(_events(text), 1):
            if type(event) is DocumentStartEvent:
                mark: Any = event.start_mark
                builder.document.start = builder.document.line = mark.line + 1
            elif type(event) is DocumentEndEvent:
                yield builder.document
                mark = event.end_mark
                builder, ended = builder.following(), mark.line + 1
            else:
                builder.feed(event)
            if builder.nodes - builder.aliased > most_nodes:
                raise TooManyValuesError(f"more than {most_nodes} values", event.start_mark.line + 1)
            if number % _EVENTS_AT_ONCE == 0:
                yield None
    except TextError as error:
        error.document = builder.document.number
        error.start = builder.document.start or ended
        raise


def parse_single(raw: str | bytes, what: str = "text") -> Document:
    """Return the only document of a YAML text, called ``what`` in messages. Empty documents after it are ignored.

    Raises:
        TextError: see :func:`parse_documents`; and if there is a second document.
    """
    return finish(parsing_single(raw, what))


def parsing_single(raw: str | bytes, what: str = "text", *, most_nodes: int = sys.maxsize) -> Steps[Document]:
    """Parse like :func:`parse_single`, in steps of some milliseconds.

    ``most_nodes`` limits the scalars, lists and mappings that are written.

    Raises:
        TextError: see :func:`parse_single`.
        TooManyValuesError: if there are more nodes, further documents included.
    """
    first: Document | None = None
    for document in _parsing(as_text(raw), 1, most_nodes):
        if document is None:
            yield
        elif first is None:
            first = document
        elif document.data is not None:
            problem = f"a second document starts here; the {what} is a single document"
            raise TextError(problem, document.start, document=document.number)
    return first or Document()


# -- files -------------------------------------------------------------------------------------------------


def read_documents(raw: str | bytes, name: str) -> Iterator[Document]:
    """Yield the documents of a file. A ``name`` with the ending ``.json`` means JSON, any other name YAML.

    A duplicate key is refused.

    Raises:
        TextError: see :func:`parse_documents` and :func:`parse_json`.
    """
    if name.endswith(".json"):
        documents = iter([parse_json(raw.encode() if isinstance(raw, str) else raw)])
    else:
        documents = parse_documents(raw)
    for document in documents:
        document.refuse_duplicates()
        yield document


def read_single(raw: str | bytes, what: str, *, most_nodes: int = sys.maxsize) -> Any:
    """Return the plain data of a YAML or JSON text with a single document. A duplicate key is refused.

    ``what`` names the text in messages.

    Raises:
        TextError: see :func:`parsing_single`.
    """
    document = finish(parsing_single(raw, what, most_nodes=most_nodes))
    document.refuse_duplicates()
    return document.data


# -- writing -----------------------------------------------------------------------------------------------


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writer of every value in full. It writes no anchors, and quotes every string that this module would otherwise not
    read as a string.
    """

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if not text.replace("\n", "").isprintable() or not isinstance(resolve_plain(text), str) or text == "<<":
        style = '"'
    elif "\n" in text:
        style = "|"
    return dumper.represent_scalar(_TAG + "str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def to_yaml(data: Any, *, sort_keys: bool = True) -> str:
    """Write plain data as upstream does: sorted keys, two spaces, dashes at the parent's column.

    There is no end mark, so that texts can be joined. libyaml writes one if any text ends with empty lines.
    """
    text: str = yaml.dump(
        data, Dumper=_Dumper, default_flow_style=False, sort_keys=sort_keys, allow_unicode=True, width=1 << 30
    )
    return text.removesuffix("...\n") if text.endswith("\n...\n") else text
