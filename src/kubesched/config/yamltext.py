"""YAML (and so JSON) text to plain data and back, with the care a hand-written file needs.

Called by ``load`` with the text of a configuration. Reads the parser's events instead of PyYAML's
ready-made objects: that gives line numbers for duplicate keys, upstream's idea of scalars (``1e3`` is a
number, a date is a string, ``12:30`` is a string) and limits on nesting, size and alias expansion, all
without recursion.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from .errors import ConfigError

__all__ = ["MAX_BYTES", "Document", "json_number", "parse_document", "resolve_plain", "to_yaml"]

#: Larger files are refused unread; a configuration is a few kilobytes.
MAX_BYTES: Final = 2 * 1024 * 1024
_MAX_DEPTH: Final = 100
#: Nodes counted with every alias expanded: what a "billion laughs" file would become.
_MAX_NODES: Final = 200_000
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


@dataclass(slots=True)
class Document:
    """A document's plain data, and the complaint about each key given twice (with its line)."""

    data: Any = None
    duplicates: list[str] = field(default_factory=list)


def _fail(text: str, line: int | None = None, *details: str) -> ConfigError:
    where = f"line {line}: " if line is not None else ""
    return ConfigError("decode", [f"yaml: {where}{text}"], details=details)


def resolve_plain(text: str) -> Any:
    """What an unquoted scalar means: None, bool, int, float or the text itself.

    Integers beyond 64 bits become floats, as in upstream's reader.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
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
    """A number as JSON text: whole floats below 1e21 print like integers."""
    if isinstance(number, float) and number.is_integer() and abs(number) < 1e21:
        return str(int(number))
    return repr(number)


_NO_KEY: Final = object()
_MERGE: Final = object()
_OPEN: Final = object()


@dataclass(slots=True)
class _Frame:
    """A list or a mapping being read."""

    value: Any
    anchor: str | None
    nodes_before: int
    key: Any = _NO_KEY
    merged: list[Any] = field(default_factory=list)


class _Builder:
    """Builds plain data from parser events; one instance per document."""

    def __init__(self) -> None:
        self.document = Document()
        self.stack: list[_Frame] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.nodes = 0

    def feed(self, event: yaml.Event) -> None:
        line = _line(event)
        if isinstance(event, yaml.ScalarEvent):
            self._count(1, line)
            value = self._scalar(event, line)
            self._remember(event.anchor, value, 1)
            self._add(value, line)
        elif isinstance(event, yaml.AliasEvent):
            self._add(self._alias(event.anchor or "", line), line)
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            self._start(event, line)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            self._end(line)

    def _count(self, nodes: int, line: int) -> None:
        self.nodes += nodes
        if self.nodes > _MAX_NODES:
            raise _fail("document contains excessive aliasing or too many values", line)

    def _remember(self, anchor: str | None, value: Any, nodes: int) -> None:
        if anchor:
            self.anchors[anchor] = (value, nodes)

    def _alias(self, anchor: str, line: int) -> Any:
        if anchor not in self.anchors:
            raise _fail(f"unknown anchor '{anchor}' referenced", line)
        value, nodes = self.anchors[anchor]
        if value is _OPEN:
            raise _fail(f"anchor '{anchor}' value contains itself", line)
        self._count(nodes, line)
        return value

    def _start(self, event: yaml.CollectionStartEvent, line: int) -> None:
        is_map = isinstance(event, yaml.MappingStartEvent)
        kind = "map" if is_map else "seq"
        if event.tag not in (None, "!", _TAG + kind):
            raise _fail(f"tag {event.tag!r} is not supported here", line)
        if len(self.stack) >= _MAX_DEPTH:
            raise _fail(f"nested more than {_MAX_DEPTH} levels deep", line)
        if self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is _NO_KEY:
            raise _fail(f"invalid map key: a {'map' if is_map else 'list'} cannot be a key", line)
        self._count(1, line)
        self._remember(event.anchor, _OPEN, 0)
        self.stack.append(_Frame({} if is_map else [], event.anchor, self.nodes - 1))

    def _end(self, line: int) -> None:
        frame = self.stack.pop()
        for merged in frame.merged:
            for key, value in merged.items():
                frame.value.setdefault(key, value)
        self._remember(frame.anchor, frame.value, self.nodes - frame.nodes_before)
        self._add(frame.value, line)

    def _add(self, value: Any, line: int) -> None:
        """Put a finished value where it belongs: into its list, as a key, as a key's value, or as the document."""
        if not self.stack:
            self.document.data = value
            return
        frame = self.stack[-1]
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.key is _NO_KEY:
            frame.key = value if value is _MERGE else self._key(value, frame, line)
        else:
            if frame.key is _MERGE:
                frame.merged += self._merge_sources(value, line)
            else:
                frame.value[frame.key] = value
            frame.key = _NO_KEY

    def _key(self, value: Any, frame: _Frame, line: int) -> str:
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, (int, float)):
            value = json_number(value)
        if not isinstance(value, str):
            raise _fail("invalid map key: write a name before the colon", line)
        if value in frame.value:
            self.document.duplicates.append(f'  line {line}: key "{value}" already set in map')
        return value

    @staticmethod
    def _merge_sources(value: Any, line: int) -> list[Any]:
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            raise _fail("map merge requires map or sequence of maps as the value", line)
        return sources

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> Any:
        text: str = event.value
        if event.tag is None and event.implicit[0]:
            is_key = self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is _NO_KEY
            if text == "<<" and is_key:
                return _MERGE
            value = resolve_plain(text)
        elif event.tag in (None, "!", _TAG + "str", _TAG + "timestamp"):
            return text
        else:
            types = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}
            wanted = types.get(event.tag.removeprefix(_TAG))
            if wanted is None:
                raise _fail(f"tag {event.tag!r} is not supported here", line)
            value = resolve_plain(text)
            if not isinstance(value, wanted):  # type: ignore[arg-type]
                raise _fail(f"cannot read {text[:40]!r} as {event.tag.removeprefix(_TAG)}", line)
        if isinstance(value, float) and not math.isfinite(value):
            name = "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
            raise ConfigError(
                "decode", [f"json: unsupported value: {name}"], details=[f"line {line}: {text[:40]} is out of range"]
            )
        return value


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


def _as_text(raw: str | bytes) -> str:
    if len(raw) > MAX_BYTES:
        raise ConfigError("decode", [f"the configuration is larger than {MAX_BYTES} bytes"])
    if isinstance(raw, str):
        return raw.removeprefix("\ufeff")
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise _fail(
            f"invalid {encoding.removesuffix('-sig').upper()} text at byte {error.start}",
            None,
            "a configuration is YAML or JSON text; is this the right file?",
        ) from None


def _events(text: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        details = [f"{error.context} from line {error.context_mark.line + 1}"] if error.context_mark else []
        raise _fail(error.problem or "not readable", mark.line + 1 if mark else None, *details) from None
    except yaml.reader.ReaderError as error:
        raise _fail("control characters are not allowed", None, str(error).splitlines()[0]) from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise _fail(f"not readable: {error}") from None


def parse_document(raw: str | bytes) -> tuple[str, Document]:
    """Read one YAML document. Also returns the text itself, which some messages quote.

    Later empty documents are ignored. Keys brought in by ``<<`` yield to the mapping's own.

    Raises:
        ConfigError: when the text is not YAML, too big, too deep, or more than one document.
    """
    text = _as_text(raw)
    builder, first = _Builder(), None
    for event in _events(text):
        if isinstance(event, yaml.DocumentStartEvent):
            start = _line(event)
        elif isinstance(event, yaml.DocumentEndEvent):
            if first is None:
                first = builder.document
            elif builder.document.data is not None:
                raise _fail("a second document starts here; the configuration is a single document", start)
            builder = _Builder()
        else:
            builder.feed(event)
    return text, first or Document()


class _Dumper(yaml.SafeDumper):
    """Writes every value in full: no anchors, and quotes wherever our own reader would see no string."""

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


def to_yaml(data: Any) -> str:
    """Plain data as YAML the way upstream writes it: sorted keys, two spaces, dashes at the parent's column."""
    return yaml.dump(data, Dumper=_Dumper, default_flow_style=False, sort_keys=True, allow_unicode=True, width=1 << 30)
