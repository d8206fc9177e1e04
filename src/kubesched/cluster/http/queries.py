"""The query string of a request, read and checked as the API server checks its option objects.

Caller: the verb modules. A wrong value is 400, a forbidden combination 422, in upstream's words.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from ...api.kinds import Kind
from ...api.wire import ApiError
from .answers import wants_pretty

__all__ = ["Query", "invalid_options"]

_TRUE: Final = frozenset({"1", "t", "true", "True", "TRUE", "T"})
_FALSE: Final = frozenset({"0", "f", "false", "False", "FALSE", "F", ""})
_VALIDATIONS: Final = ("Ignore", "Strict", "Warn")
MAX_MANAGER: Final = 128


class Query:
    """The parameters of one request; of a repeated one the first counts."""

    __slots__ = ("_values",)

    def __init__(self, text: str = "") -> None:
        self._values: dict[str, str] = {}
        if text:
            try:
                pairs = parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=256)
            except ValueError as error:
                raise ApiError.bad_request(f"the query cannot be read: {error}") from None
            for key, value in pairs:
                self._values.setdefault(key, value)

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def has(self, name: str) -> bool:
        return name in self._values

    def flag(self, name: str) -> bool:
        """A boolean, false when absent; anything but true or false is 400. A bare name means true."""
        if name not in self._values:
            return False
        value = self._values[name]
        if value in _TRUE or (not value and name == "watch"):
            return True
        if value in _FALSE:
            return False
        raise ApiError.bad_request(f'strconv.ParseBool: parsing "{value}": invalid syntax in parameter {name}')

    def pretty(self, user_agent: str) -> bool:
        """Whether to indent the answer."""
        return wants_pretty(self._values.get("pretty"), user_agent)

    def number(self, name: str) -> int | None:
        """An integer, None when absent; anything else is 400."""
        value = self._values.get(name, "")
        if not value:
            return None
        if not (value.isascii() and value.lstrip("-").isdigit() and len(value) < 19 and value.count("-") <= 1):
            raise ApiError.bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax in parameter {name}')
        return int(value)

    # -- options of several verbs ------------------------------------------------------------------------

    def dry_run(self, options: str) -> bool:
        """``dryRun=All``; ``options`` names the option kind in the error."""
        value = self._values.get("dryRun", "")
        if value not in ("", "All"):
            raise invalid_options(options, "dryRun", f'Unsupported value: "{value}": supported values: "All"')
        return bool(value)

    def field_validation(self, options: str) -> str:
        value = self._values.get("fieldValidation", "")
        if value and value not in _VALIDATIONS:
            texts = ", ".join(f'"{item}"' for item in ("", *_VALIDATIONS))
            raise invalid_options(
                options, "fieldValidation", f'Unsupported value: "{value}": supported values: {texts}'
            )
        return value or "Warn"

    def field_manager(self, options: str) -> str:
        value = self._values.get("fieldManager", "")
        if len(value) > MAX_MANAGER:
            raise invalid_options(options, "fieldManager", f"Too long: may not be more than {MAX_MANAGER} bytes")
        if not value.isprintable():
            raise invalid_options(
                options, "fieldManager", f"Invalid value: {value!r}: should only contain printable characters"
            )
        return value

    def check_list(self, *, watch: bool) -> None:
        """What may not be combined in a list or watch (upstream ``ValidateListOptions``)."""
        match, name = self.text("resourceVersionMatch"), "resourceVersionMatch"
        version, token = self.text("resourceVersion"), self.text("continue")
        if self.has("sendInitialEvents"):
            if not watch:
                name, why = "sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list"
            elif match != "NotOlderThan":
                why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            else:
                return
        elif not match:
            if token and version not in ("", "0"):
                raise ApiError.bad_request("specifying resource version is not allowed when using continue")
            return
        elif watch:
            why = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        elif not version:
            why = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        elif token:
            why = "Forbidden: resourceVersionMatch is forbidden when continue is provided"
        elif match not in ("Exact", "NotOlderThan"):
            why = f'Unsupported value: "{match}": supported values: "", "Exact", "NotOlderThan"'
        elif match == "Exact" and version == "0":
            why = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        else:
            return
        raise invalid_options("ListOptions", name, why)


def invalid_options(options: str, field: str, message: str) -> ApiError:
    """422 for a wrong member of an options object; the message begins as field errors do."""
    begin = message.partition(" ")[0]
    reason = {"Forbidden:": "Forbidden", "Required": "Required", "Unsupported": "NotSupported"}.get(begin, "Invalid")
    kind = Kind("meta.k8s.io", "v1", options, options.lower())
    error = ApiError.invalid(kind, "", [(field, f"FieldValue{reason}", message)])
    del error.details["name"]
    return error
