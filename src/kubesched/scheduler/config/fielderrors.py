"""Texts of validation errors: formats, value printing, and the rules for names.

Used by ``validate`` and ``validate_args``. Formats: rules/configuration §6.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from kubesched.api.selectors import is_label_value
from kubesched.api.yamltext import json_number

from .durations import Duration

__all__ = [
    "duplicate",
    "forbidden",
    "go_json",
    "invalid",
    "label_value_errors",
    "not_supported",
    "qualified_name_errors",
    "quote",
    "required",
]


def quote(text: str) -> str:
    """Put a string in double quotes, control characters escaped."""
    return json.dumps(text, ensure_ascii=False)


def go_json(value: Any) -> Any:
    """Convert a configuration object to the form in upstream's messages: Go field names, empty lists as null."""
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        return {_go_name(name): go_json(getattr(value, name)) for name in names}
    if isinstance(value, (tuple, list)):
        return [go_json(item) for item in value] or None
    return str(value) if isinstance(value, Duration) else value


def _go_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _print(value: Any) -> str:
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, Duration):
        return f'"{value}"'
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return json_number(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def invalid(path: str, value: Any, text: str) -> str:
    return f"{path}: Invalid value: {_print(value)}: {text}"


def required(path: str, text: str = "") -> str:
    return f"{path}: Required value" + (f": {text}" if text else "")


def not_supported(path: str, value: str, supported: Iterable[str]) -> str:
    return f"{path}: Unsupported value: {quote(value)}: supported values: {', '.join(map(quote, supported))}"


def forbidden(path: str, text: str) -> str:
    return f"{path}: Forbidden: {text}"


def duplicate(path: str, value: str) -> str:
    """Format a duplicate; ``value`` is printed already (quoted or not)."""
    return f"{path}: Duplicate value: {value}"


_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME_RE: Final = re.compile(_NAME + r"\Z", re.ASCII)
_SUBDOMAIN_RE: Final = re.compile(_SUBDOMAIN + r"\Z", re.ASCII)
_NAME_TEXT: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME}')"
)
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'({_NAME})?')"
)


def qualified_name_errors(name: str) -> list[str]:
    """Return the faults of ``name`` as a label key or resource name; empty when it is valid."""
    errors = []
    parts = name.split("/")
    if len(parts) > 2:
        return [
            f"a qualified name {_NAME_TEXT} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    if len(parts) == 2:
        prefix = parts[0]
        if not prefix:
            errors.append("prefix part must be non-empty")
        else:
            if len(prefix.encode()) > 253:
                errors.append("prefix part must be no more than 253 bytes")
            if not _SUBDOMAIN_RE.match(prefix):
                errors.append(f"prefix part {_SUBDOMAIN_TEXT}")
    last = parts[-1]
    if not last:
        errors.append("name part must be non-empty")
    elif len(last.encode()) > 63:
        errors.append("name part must be no more than 63 bytes")
    if not _NAME_RE.match(last):
        errors.append(f"name part {_NAME_TEXT}")
    return errors


def label_value_errors(value: str) -> list[str]:
    """Return the faults of ``value`` as a label's value; empty when it is valid."""
    if is_label_value(value):
        return []
    errors = ["must be no more than 63 bytes"] if len(value.encode()) > 63 else []
    if not _NAME_RE.match(value):
        errors.append(_LABEL_TEXT)
    return errors
