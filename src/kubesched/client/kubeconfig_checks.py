"""Reading and checks of kubeconfigs: their loader waits for pipes and devices, and seldom names a field of a wrong form.

A wrong value is shown, except below ``users``: it may be a secret. Callers: :mod:`.access`, :mod:`.credential_sources`.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

from kubesched.api.documents import TOO_DEEP, TextError
from kubesched.api.yamltext import parsing_single
from kubesched.base.small_file import read_small_file
from kubesched.base.turns import finish

__all__ = ["FormError", "check_files", "check_token", "read_kubeconfig"]

#: Form of a kubeconfig: a type, a list of one form, or a mapping with the forms of its members. Others are not used.
_FORM: Final[dict[str, Any]] = {
    "current-context": str,
    "clusters": [
        {
            "name": str,
            "cluster": {
                "server": str,
                "certificate-authority": str,
                "certificate-authority-data": str,
                "insecure-skip-tls-verify": bool,
                "tls-server-name": str,
                "proxy-url": str,
            },
        }
    ],
    "contexts": [{"name": str, "context": {"cluster": str, "user": str, "namespace": str}}],
    "users": [
        {
            "name": str,
            "user": {
                "token": str,
                "tokenFile": str,
                "client-certificate": str,
                "client-certificate-data": str,
                "client-key": str,
                "client-key-data": str,
                "username": str,
                "password": str,
                "exec": {"apiVersion": str, "command": str, "args": [str], "env": [{"name": str, "value": str}]},
                "auth-provider": {"name": str, "config": {}},
            },
        }
    ],
}
_TYPES: Final[dict[type, str]] = {
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a mapping",
    type(None): "nothing",
}
#: Fields of the parts of a context that name files in PEM; the member ``FIELD-data`` may have the content instead.
_PEM_FIELDS: Final = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key")}
_MOST_SHOWN: Final = 80


class FormError(ValueError):
    """The file is no kubeconfig. The message begins with the file's name."""


def read_kubeconfig(path: str) -> dict[str, Any]:
    """Return the content of a file of a kubeconfig; an empty file is an empty mapping.

    Raises:
        FormError: if the file cannot be read, is no regular file or too large, or if a member has a wrong form.
    """
    try:
        config = finish(parsing_single(read_small_file(path), "kubeconfig")).data
    except OSError as error:
        raise FormError(f"{path}: {error.strerror or error}") from None
    except TextError as error:  # its words may have a part of the text
        place = f"line {error.line}: " if error.line else ""
        raise FormError(f"{path}: {place}{TOO_DEEP if error.problem == TOO_DEEP else 'is no YAML'}") from None
    config = {} if config is None else config
    try:
        _check(config, _FORM, "")
    except ValueError as error:
        raise FormError(f"{path}: {error}") from None
    return dict(config)


def check_files(loader: Any) -> None:
    """Check the files and certificates that the loader's context names, and the token, which becomes a header.

    Raises:
        ValueError: if a file cannot be read, is no regular file or too large, or if its content, or that of a field, has a
            wrong form. The message has the field.
    """
    if not loader._cluster.value:
        raise ValueError(
            f"{_owner(loader._cluster)}: server: expected an address such as https://host:6443, got nothing"
        )
    for part, fields in _PEM_FIELDS.items():
        node = getattr(loader, f"_{part}")
        for field in fields:
            if data := node.value.get(f"{field}-data"):
                _check_pem(_decoded(data), f"{_owner(node)}: {field}-data")
            elif (name := node.value.get(field)) and f"{field}-data" not in node.value:
                _check_pem(_file(node, field), f"{_owner(node)}: {field}: {_shown(name)}")
    user = loader._user
    if token := user.value.get("token"):
        if fault := check_token(token):
            raise ValueError(f"{_owner(user)}: token: {fault}")
    elif user.value.get("tokenFile"):
        _file(user, "tokenFile")


def check_token(token: str) -> str:
    """Return the reason why a token cannot be a header; empty if it can. The token is not shown."""
    if not token:
        return "it is empty"
    if not token.isprintable():
        return "it has a line break or another control character"
    return "" if token.isascii() else "it has a character that is not in ASCII"


def _check(value: Any, form: Any, where: str) -> None:
    wanted: type = form if isinstance(form, type) else type(form)
    has_form = isinstance(value, wanted)  # a name of its own, so that the type of the value stays Any
    if not has_form:
        is_secret = not where or where.startswith("users")  # a file with nothing but a text may be a token
        shown = "" if is_secret or not isinstance(value, str | int | float) else f": {_shown(value)}"
        place = f"{where}: " if where else "is no kubeconfig: "
        raise ValueError(f"{place}expected {_TYPES[wanted]}, got {_TYPES[type(value)]}{shown}")
    if isinstance(form, list):
        for index, item in enumerate(value):
            _check(item, form[0], f"{where}[{index}]")
    elif isinstance(form, dict):
        for key, member in form.items():
            if value.get(key) is not None or key == "name":
                _check(value.get(key), member, f"{where}.{key}" if where else key)


def _owner(node: Any) -> str:
    """Return the part of a context in words, such as ``user 'admin'``, from the loader's ``user 'admin'/user``."""
    return str(node.name).rpartition("/")[0]


def _file(node: Any, field: str) -> bytes:
    name = node.value[field]
    try:
        return read_small_file(Path(node.path).parent / name)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{_owner(node)}: {field}: {_shown(name)}: {reason}") from None


def _decoded(data: str) -> bytes | None:
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except ValueError:
        return None


def _check_pem(content: bytes | None, where: str) -> None:
    if content is None or b"-----BEGIN " not in content:
        form = "PEM text" if content is not None else "PEM text in base64"
        raise ValueError(f"{where}: expected {form} (-----BEGIN ...)")


def _shown(value: object) -> str:
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
