"""Checks of Secrets and ConfigMaps: keys, base64, and what a type of Secret must hold. Caller: :mod:`.checks`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ...api.wire import ApiError
from .validation import CONFIG_KEY_TEXT, Causes, is_config_key

__all__ = ["check_config_map", "check_secret"]

_BAD: Final = re.compile(r"[^A-Za-z0-9+/\r\n]")
#: Keys that a Secret of a type must have; of basic authentication one is enough.
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_ACCOUNT: Final = "kubernetes.io/service-account.name"


def _check_base64(kind: str, values: Mapping[str, Any]) -> None:
    """Raises 400 as a decoder would: with the first byte that is wrong."""
    for text in values.values():
        plain = text.replace("\n", "").replace("\r", "")
        body = plain.rstrip("=")
        bad = _BAD.search(body)
        padding = len(plain) - len(body)
        if bad is not None:
            position = bad.start()
        elif len(plain) % 4 or padding > 2:
            position = len(body) if padding else len(plain) // 4 * 4
        else:
            continue
        problem = f"illegal base64 data at input byte {position}"
        raise ApiError.bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {problem}')


def _check_keys(data: Mapping[str, Any], field: str, causes: Causes) -> None:
    for key in data.get(field) or ():
        if not is_config_key(key):
            causes.invalid(f"{field}[{key}]", key, CONFIG_KEY_TEXT)


def check_secret(data: dict[str, Any], path: str, causes: Causes) -> None:
    """Raises 400 for values that are not base64."""
    values = data.get("data") or {}
    _check_base64("Secret", values)
    _check_keys(data, "data", causes)
    type_ = data["type"]
    for key in _KEYS.get(type_, ()):
        if key not in values:
            causes.required(f"data[{key}]")
    if type_ == "kubernetes.io/basic-auth" and not {"username", "password"} & set(values):
        causes.required("data[username]")
        causes.required("data[password]")
    if type_ == "kubernetes.io/service-account-token" and not (data["metadata"].get("annotations") or {}).get(_ACCOUNT):
        causes.required(f"metadata.annotations[{_ACCOUNT}]")


def check_config_map(data: dict[str, Any], path: str, causes: Causes) -> None:
    """Raises 400 for binary values that are not base64."""
    binary = data.get("binaryData") or {}
    _check_base64("ConfigMap", binary)
    for field in ("data", "binaryData"):
        _check_keys(data, field, causes)
    for key in binary:
        if key in (data.get("data") or {}):
            causes.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
