"""Login to the dashboard on loopback: a link that works once, a session cookie, and the checks of each request.

The command prints the link. Its first use sets the cookie. The cookie is signed by a key in a file of the user, so a session goes
on after a restart of the program. Web pages of other origins can neither read an answer nor write: see :meth:`Login.check_host`
and :func:`check_write`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Final

from kubesched.base.extras import needing
from kubesched.base.hosts import is_loopback, name_in
from kubesched.base.times import Clock

from .source import Refused

with needing("the dashboard", "server"):
    from aiohttp import web

__all__ = ["COOKIE", "MOST_BODY", "Login", "check_write", "session_key"]

#: Name of the session cookie.
COOKIE: Final = "kubesched-ui"
#: Seconds for which a session lasts.
SESSION_SECONDS: Final = 30 * 86_400
#: Most bytes in the body of a request.
MOST_BODY: Final = 64 * 1024

_KEY: Final = re.compile(r"[0-9a-f]{64}\n?")
#: Time of the login in seconds, a random text, and the signature of both.
_SESSION: Final = re.compile(r"([0-9]{1,12})\.([0-9a-f]{16})\.([0-9a-f]{64})")


def session_key(environment: Mapping[str, str]) -> tuple[bytes, str]:
    """Return the key that signs sessions, and a remark. Make its file if there is none.

    The file is ``$XDG_STATE_HOME/kubesched/ui.key``, by default in ``~/.local/state``. If it cannot be used, the key is a random
    one, and the remark says why and what follows; otherwise it is empty.
    """
    fresh = secrets.token_bytes(32)
    home = Path(environment.get("XDG_STATE_HOME", ""))
    try:
        folder = home if home.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:  # the user has no home
        return fresh, "there is no home directory to keep a key in; logins end with the program"
    path = folder / "kubesched" / "ui.key"
    try:
        return _stored_key(path, fresh), ""
    except OSError as error:
        return fresh, f"{path}: {error.strerror or error}; logins end with the program"
    except ValueError as error:
        return fresh, f"{path}: {error}; logins end with the program"


def _stored_key(path: Path, fresh: bytes) -> bytes:
    """Return the key in a file, which is made if it does not exist.

    Raises:
        OSError: when the file cannot be read or made.
        ValueError: when others can read the file, or it holds no key.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except FileExistsError:
        pass
    else:
        with os.fdopen(made, "w", encoding="ascii") as file:
            file.write(f"{fresh.hex()}\n")
        return fresh
    # A pipe of that name must not hold up the start.
    there = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(there, encoding="ascii", errors="replace") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no file")
        if os.name == "posix" and status.st_mode & 0o077:
            raise ValueError("other users can read it; make it private with chmod 600, or delete it")
        if os.name == "posix" and status.st_uid != os.getuid():
            raise ValueError("it belongs to another user")
        text = file.read(128)
    if not _KEY.fullmatch(text):
        raise ValueError("it holds no key; delete it, and it will be made anew")
    return bytes.fromhex(text.strip())


class Login:
    """Login of the loopback listener: the key of the next link, and the signatures of sessions.

    ``announce`` is called with the text of the next link's key each time a link was used, so that a second browser can log in.
    """

    def __init__(self, key: bytes, clock: Clock, announce: Callable[[str], None] = lambda key: None) -> None:
        self._key = key
        self._clock = clock
        self._announce = announce
        #: Key of the link that has not been used.
        self.link_key = secrets.token_urlsafe(32)

    def use(self, given: str) -> str:
        """Return a session for the key of a link. The key is spent then.

        Raises:
            Refused: 401 for another key, such as one that was used.
        """
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self.link_key.encode()):
            raise Refused(
                401, "this link was used or is of another program; open the newest link that the command printed"
            )
        self.link_key = secrets.token_urlsafe(32)
        self._announce(self.link_key)
        text = f"{int(self._clock.now())}.{secrets.token_hex(8)}"
        return f"{text}.{self._signature(text)}"

    def is_session(self, cookie_header: str) -> bool:
        """Return True if a Cookie header has a session that this user's key signed and that is not too old."""
        found = _SESSION.fullmatch(_cookie(cookie_header))
        if found is None:
            return False
        since, nonce, signature = found.groups()
        is_ours = hmac.compare_digest(signature, self._signature(f"{since}.{nonce}"))
        return is_ours and -60 <= self._clock.now() - int(since) <= SESSION_SECONDS

    def _signature(self, text: str) -> str:
        return hmac.new(self._key, f"kubesched dashboard session {text}".encode(), hashlib.sha256).hexdigest()

    @staticmethod
    def check_host(request: web.BaseRequest) -> None:
        """Refuse a request whose Host is not this machine: a name of someone else may have been made to lead here.

        Raises:
            Refused: 403.
        """
        hosts = request.headers.getall("Host", ())
        if len(hosts) != 1 or not is_loopback(name_in(hosts[0])):
            shown = repr(hosts[0][:100]) if hosts else "no Host header"
            raise Refused(
                403, f"the dashboard answers to localhost and loopback addresses, not to {ascii(shown)[1:-1]}"
            )


def check_write(request: web.BaseRequest, *, with_origin: bool) -> None:
    """Refuse a POST request that a page of another origin may have made.

    Such a page can send neither the header nor the content type without a CORS preflight, which is never granted.

    Raises:
        Refused: 403 for a missing header or another origin, 415 for another content type.
    """
    headers = request.headers
    if headers.getall("X-Kubesched", ()) != ["1"]:
        raise Refused(403, "a request that changes something needs the header X-Kubesched: 1")
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "the body must be JSON: Content-Type: application/json")
    origins = headers.getall("Origin", ())
    if with_origin and list(origins) != [f"http://{headers.get('Host', '')}"]:
        raise Refused(403, "the Origin header must name this page's own origin")


def _cookie(header: str) -> str:
    if len(header) > 8192:
        return ""
    try:
        morsel = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""
