"""Checks of kubeconfigs, because their loader waits for devices and pipes, and does not name a field of a wrong form.

No value of a user is shown. Caller: :mod:`.access`.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import yaml

from kubesched.base.small_file import read_small_file

__all__ = ["check_files", "wrong_form"]

#: Fields of the parts of a context that name files.
_FILES: Final = {
    "cluster": ("certificate-authority",),
    "user": ("tokenFile", "client-certificate", "client-key"),
}
#: Parts of each entry of a kubeconfig, with the fields of it that are texts.
_PARTS: Final = {
    "clusters": ("cluster", ("server", "certificate-authority", "certificate-authority-data", "tls-server-name")),
    "users": ("user", ("token", "tokenFile", "client-certificate-data", "client-key-data", "username", "password")),
    "contexts": ("context", ("cluster", "user", "namespace")),
}


def check_files(loader: Any) -> None:
    """Check the files that the loader's context names, and the token, which becomes a header.

    Raises:
        ValueError: if a file cannot be read, is no regular file or too large, or if the token has a line break. The message
            has the field.
    """
    context = (loader.current_context or {}).get("context") or {}
    for part, fields in _FILES.items():
        node: Any = getattr(loader, f"_{part}")
        found = node.value if node is not None and isinstance(node.value, dict) else {}
        where = f"{part} {context.get(part)!r}"
        for field in fields:
            name = found.get(field)
            if isinstance(name, str) and name and f"{field}-data" not in found:
                try:
                    read_small_file(Path(node.path).parent / name if node.path else Path(name))
                except OSError as error:
                    raise ValueError(f"{where}: {field}: {name}: {error.strerror or error}") from None
        token = found.get("token") or ""
        if not isinstance(token, str):
            raise ValueError(f"{where}: token: expected a text, got {_type(token)}")
        if not token.isprintable():
            raise ValueError(f"{where}: token: it has a line break or another control character")


def wrong_form(places: list[Path], error: Exception) -> str:
    """Return the first field of kubeconfig files that has a wrong form; empty if none has. Values are not shown."""
    if not isinstance(error, AssertionError | AttributeError | TypeError | KeyError | IndexError):
        return ""
    for place in places:
        with suppress(OSError, yaml.YAMLError):
            config = yaml.safe_load(read_small_file(place))
            for kind, (part, texts) in _PARTS.items() if isinstance(config, dict) else ():
                entries = config.get(kind) or []
                if not isinstance(entries, list):
                    return f"{kind}: expected a list, got {_type(entries)}"
                for index, entry in enumerate(entries):
                    where = f"{kind}[{index}]"
                    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                        return f"{where}.name: expected a text"
                    value = entry.get(part) or {}
                    if not isinstance(value, dict):
                        return f"{where}.{part}: expected a mapping, got {_type(value)}"
                    for field in texts:
                        if field in value and not isinstance(value[field], str):
                            return f"{where}.{part}.{field}: expected a text, got {_type(value[field])}"
    return ""


def _type(value: object) -> str:
    return {
        int: "a number",
        float: "a number",
        bool: "true or false",
        list: "a list",
        dict: "a mapping",
        str: "a text",
    }.get(type(value), "nothing")
