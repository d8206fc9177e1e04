"""Explanations of a live scheduler, read from its server: ``kubesched explain --server URL``.

Only the standard library is needed, so the command works without any extra.
"""

from __future__ import annotations

import argparse
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from kubesched.base.small_file import check_small_files, read_small_file
from kubesched.explain.report import Explanation

from .errors import CliError

__all__ = ["explanation_from_server"]

#: Most bytes of an answer.
_MOST_BYTES: Final = 64 << 20
#: Seconds by which the time-out of the socket is longer than that of the whole, which has the better message.
_LATER: Final = 10.0


def explanation_from_server(options: argparse.Namespace, names: Sequence[str]) -> Explanation:
    """Ask the server of ``options`` about pods, as ``namespace/name``, or about all that are pending.

    Raises:
        CliError: when the server cannot be reached, refuses, takes too long in all, or answers anything but an
            explanation.
    """
    box: SimpleQueue[Explanation | BaseException] = SimpleQueue()

    def work() -> None:
        try:
            box.put(_all_of(options, names))
        except BaseException as error:  # raised by the caller of this function
            box.put(error)

    # A time-out of a socket ends with each byte that arrives. A thread that is not waited for bounds the whole.
    Thread(target=work, daemon=True).start()
    try:
        found = box.get(timeout=options.request_timeout)
    except Empty:
        text = f"--server {options.server}: no whole answer within {options.request_timeout:g} s"
        raise CliError(f"{text}; --request-timeout gives it more time") from None
    if isinstance(found, BaseException):
        raise found
    return found


def _all_of(options: argparse.Namespace, names: Sequence[str]) -> Explanation:
    nodes = urlencode([("node", name) for name in options.node])
    if names:
        paths = ["pods/" + "/".join(quote(part, safe="") for part in name.split("/", 1)) for name in names]
        found = [_ask(options, path, nodes) for path in paths]
        groups = {one.group: one for each in found for one in each.pod_groups}
        return Explanation(
            pod_groups=list(groups.values()),
            pending=[one for each in found for one in each.pending],
            not_created=[one for each in found for one in each.not_created],
            placed=[one for each in found for one in each.placed],
            evicted=[one for each in found for one in each.evicted],
            notes=[note for each in found for note in each.notes],
        )
    query = [("namespace", options.namespace)] if options.namespace else []
    return _ask(options, "pending", "&".join(filter(None, (urlencode(query), nodes))))


def _ask(options: argparse.Namespace, path: str, query: str) -> Explanation:
    base = options.server.rstrip("/")
    if urlsplit(base).scheme not in ("http", "https"):
        raise CliError(f"--server {options.server}: expected a URL such as https://127.0.0.1:10259", code=2)
    url = f"{base}/explain/{path}" + (f"?{query}" if query else "")
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    if options.token_file is not None:
        request.add_unredirected_header("Authorization", f"Bearer {_text(options.token_file, '--token-file')}")
    try:
        with urllib.request.urlopen(
            request, timeout=options.request_timeout + _LATER, context=_tls(options, base)
        ) as answer:
            body = answer.read(_MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(1000).decode(errors="replace").strip()
        raise CliError(f"{url}: {error.code} {error.reason}" + (f": {said}" if said else "")) from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise CliError(f"--server {base}: {reason}") from None
    if len(body) > _MOST_BYTES:
        raise CliError(f"{url}: the answer has more than {_MOST_BYTES >> 20} MiB")
    try:
        return msgspec.json.decode(body, type=Explanation)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CliError(f"{url}: the answer is no explanation: {error}") from None


def _tls(options: argparse.Namespace, base: str) -> ssl.SSLContext | None:
    if not base.startswith("https:"):
        return None
    try:
        check_small_files((options.certificate_authority, options.client_certificate, options.client_key))
        context = ssl.create_default_context(cafile=options.certificate_authority)
        if options.client_certificate is not None:
            context.load_cert_chain(options.client_certificate, options.client_key)
    except (OSError, ValueError) as error:
        given = [options.certificate_authority, options.client_certificate, options.client_key]
        files = ", ".join(name for name in given if name)
        raise CliError(f"{files}: cannot be used as certificate: {getattr(error, 'strerror', None) or error}") from None
    if options.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _text(path: str, option: str) -> str:
    try:
        text = read_small_file(path).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{option} {path}: {getattr(error, 'strerror', None) or error}") from None
    if not text or any(not " " < letter < "\x7f" for letter in text):
        raise CliError(f"{option} {path}: expected a bearer token on one line")
    return text
