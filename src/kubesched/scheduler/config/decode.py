"""Decoding of a configuration document to typed objects: version and kind, strictness, plugin arguments.

Called by ``load``, which then applies defaults; ``shapes`` decodes the single objects. Errors and the order in which
they win: rules/configuration §6.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubesched.api.yamltext import Document, TextError, as_text, parse_single

from .args import ARGS_TYPES, args_kind
from .errors import ConfigError
from .shapes import Decoder, WrongTypeError, describe, json_kind
from .types import API_VERSION, GROUP, KIND, KubeSchedulerConfiguration, PluginConfig, ProfileConfig

__all__ = [
    "MAX_BYTES",
    "REMOVED_IN",
    "V1",
    "Scheme",
    "decode_args",
    "decode_configuration",
    "decode_document",
    "duplicate_keys",
    "parse_document",
    "strict_error",
    "version_and_kind",
]

#: Most bytes of a configuration file; larger files are refused unread. A configuration is a few kilobytes.
MAX_BYTES: Final = 2 * 1024 * 1024

_SCHEME: Final = "pkg/scheduler/apis/config/scheme/scheme.go:29"
_TYPE_META: Final = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
)
#: Most characters of a document without a kind that are quoted back (upstream quotes all of it).
_QUOTED: Final = 4096
#: Release that dropped a version of the configuration, by version.
REMOVED_IN: Final = {"v1alpha1": "1.19", "v1alpha2": "1.19", "v1beta1": "1.23", "v1beta2": "1.28", "v1beta3": "1.29"}


@dataclass(frozen=True, slots=True)
class Scheme:
    """Version of the configuration: its apiVersion, and the type of arguments by plugin name."""

    api_version: str
    args_types: Mapping[str, type[Any]]

    def knows(self, kind: str) -> bool:
        """True if ``kind`` is the configuration or some plugin's arguments."""
        return kind == KIND or (kind.endswith("Args") and kind.removesuffix("Args") in self.args_types)


V1: Final = Scheme(API_VERSION, ARGS_TYPES)


_ADVICE: Final = f"a configuration starts with the lines apiVersion: {API_VERSION} and kind: {KIND}"


def version_and_kind(
    data: Any,
    text: str,
    *,
    default_kind: str = "",
    default_version: str = API_VERSION,
    path: str = "",
    advice: str = _ADVICE,
) -> tuple[str, str]:
    """Read the object's apiVersion and kind, and check that they are texts.

    Plugin arguments may lack both; ``default_kind`` and ``default_version`` are used then. ``path`` and ``advice``
    explain an error to people.

    Raises:
        ConfigError: when the data is no object, or names no version or kind and has no default for it.
    """
    prefix = "couldn't get version/kind; json parse error: json: cannot unmarshal"
    data = {} if data is None else data
    if not isinstance(data, dict):
        text = f"{prefix} {json_kind(data)} into Go value of type {_TYPE_META}"
        details = [f"{path}: {describe(data)} is not an object (name: value lines)"] if path else [advice]
        raise ConfigError("decode", [text], details=details)
    for name in ("apiVersion", "kind"):
        value = data.get(name)
        if value is not None and not isinstance(value, str):
            text = f"{prefix} {json_kind(value)} into Go struct field .{name} of type string"
            raise ConfigError("decode", [text], details=[f"{path or 'document'}: {name} has to be text"])
    version, kind = data.get("apiVersion") or "", data.get("kind") or ""
    if default_kind:
        version, kind = version or default_version, kind or default_kind
    missing = "Kind" if not kind else "apiVersion" if not version else ""
    if missing:
        quoted = text if len(text) <= _QUOTED else text[:_QUOTED] + "…"
        raise ConfigError("decode", [f"Object '{missing}' is missing in '{quoted}'"], details=[advice])
    if version.count("/") > 1:
        raise ConfigError("decode", [f"unexpected GroupVersion string: {version}"], details=[advice])
    return version, kind


def _not_registered(version: str, kind: str) -> ConfigError:
    group, _, short = version.rpartition("/")
    details = [f"this scheduler reads apiVersion {API_VERSION}, and converts {', '.join(REMOVED_IN)}"]
    if group == GROUP and short in REMOVED_IN:
        details = [f"{short} was removed in Kubernetes {REMOVED_IN[short]}; rewrite the file for {API_VERSION}"]
    return ConfigError(
        "decode", [f'no kind "{kind}" is registered for version "{version}" in scheme "{_SCHEME}"'], details=details
    )


def decode_args(entry: PluginConfig, prefix: str, details: list[str], scheme: Scheme) -> tuple[PluginConfig, str]:
    """Decode the args of a ``pluginConfig`` entry. The second value is its strict error (empty when there is none).

    Raises:
        ConfigError: for any error except unknown fields; the text lacks the entry's path.
    """
    type_ = scheme.args_types.get(entry.name)
    if type_ is None:
        return entry, ""
    if entry.args is None:
        return PluginConfig(name=entry.name, args=type_()), ""
    decoding = f"decoding args for plugin {entry.name}: "
    kind_wanted = args_kind(entry.name)
    try:
        version, kind = version_and_kind(
            entry.args, "", default_kind=kind_wanted, default_version=scheme.api_version, path=prefix.rstrip(".")
        )
        if version != scheme.api_version or not scheme.knows(kind):
            raise _not_registered(version, kind)
    except ConfigError as error:
        raise ConfigError("decode", [decoding + str(error)], details=error.details) from None
    if kind != kind_wanted:
        text = f"args for plugin {entry.name} were not of type {kind_wanted}.{GROUP}, got {kind}.{GROUP}"
        raise ConfigError("decode", [text], details=[f"{prefix}kind: write {kind_wanted} or leave it out"])
    decoder = Decoder(prefix)
    try:
        args = decoder.decode(entry.args, type_)
    except WrongTypeError as error:
        raise ConfigError("decode", [decoding + error.text], details=[error.detail]) from None
    details += decoder.details
    strict = strict_error([f"unknown field {name}" for name in decoder.unknown])
    return PluginConfig(name=entry.name, args=args), decoding + strict if strict else ""


def duplicate_keys(document: Document) -> list[str]:
    """Return one text per key that a mapping has twice, with its line."""
    return [f'line {twice.line}: key "{twice.key}" already set in map' for twice in document.duplicates]


def strict_error(errors: list[str]) -> str:
    """Join errors of strict decoding into one text; empty when there are none."""
    return f"strict decoding error: {', '.join(errors)}" if errors else ""


def _decode_profile_args(profile: ProfileConfig, index: int, errors: list[str], details: list[str]) -> ProfileConfig:
    entries = []
    for number, entry in enumerate(profile.plugin_config):
        path = f"profiles[{index}].pluginConfig[{number}]"
        try:
            decoded, strict = decode_args(entry, f"{path}.args.", details, V1)
        except ConfigError as error:
            raise ConfigError("decode", [f"decoding .{path}: {error}"], details=error.details) from None
        entries.append(decoded)
        if strict:
            errors.append(f"decoding .{path}: strict decoding error: {strict}")
    return msgspec.structs.replace(profile, plugin_config=tuple(entries))


def decode_document(document: Document, text: str) -> KubeSchedulerConfiguration:
    """Decode a parsed v1 document to typed objects. Some messages quote ``text``.

    Raises:
        ConfigError: stage ``decode``.
    """
    version, kind = version_and_kind(document.data, text)
    if version != API_VERSION or not V1.knows(kind):
        raise _not_registered(version, kind)
    if kind != KIND:
        raise ConfigError("decode", [f"couldn't decode as {KIND}, got {version}, Kind={kind}: "])
    decoder = Decoder()
    try:
        config: KubeSchedulerConfiguration = decoder.decode(document.data, KubeSchedulerConfiguration)
    except WrongTypeError as error:
        raise ConfigError("decode", [error.text], details=[error.detail]) from None
    errors: list[str] = []
    if document.duplicates:
        found = [f"  {text}" for text in duplicate_keys(document)]
        errors.append("\n".join(["yaml: unmarshal errors:", *found]))
    errors += [f"unknown field {name}" for name in decoder.unknown]
    profiles = [
        _decode_profile_args(profile, index, errors, decoder.details) for index, profile in enumerate(config.profiles)
    ]
    if errors:
        raise ConfigError("decode", [strict_error(errors)], details=decoder.details)
    return msgspec.structs.replace(config, profiles=tuple(profiles))


def decode_configuration(source: str | bytes | dict[str, Any]) -> tuple[KubeSchedulerConfiguration, dict[str, Any]]:
    """Decode a document's text (or its plain data), without the defaults that depend on other fields.

    Returns the configuration and the plain data, which show the fields that were given.

    Raises:
        ConfigError: stage ``decode``.
    """
    if isinstance(source, dict):
        text, document = "", Document(source)
    else:
        text, document = parse_document(source)
    return decode_document(document, text), document.data


def parse_document(source: str | bytes) -> tuple[str, Document]:
    """Parse a configuration's text. Returns the text, too, since some messages quote it.

    Raises:
        ConfigError: when the text is not YAML, too big, too deep, or more than one document.
    """
    if len(source) > MAX_BYTES:
        raise ConfigError("decode", [f"the configuration is larger than {MAX_BYTES} bytes"])
    try:
        text = as_text(source)
    except TextError as error:
        advice = "a configuration is YAML or JSON text; is this the right file?"
        raise ConfigError("decode", [f"yaml: {error}"], details=[advice]) from None
    try:
        return text, parse_single(text, "configuration")
    except TextError as error:
        upstream = error.problem.startswith("json: ")
        raise ConfigError("decode", [error.problem if upstream else f"yaml: {error}"], details=error.details) from None
