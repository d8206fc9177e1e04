"""Log of the connection to an API server. It has one line for each state, not one for each kind of object and retry.

    works ◀──▶ credentials refused, certificate refused, name unknown, nothing listens, connection lost

A state is logged when it begins, then every :data:`REMIND_SECONDS` with the number of failures since. An error of one
request, such as a missing permission, is left to the caller. Callers: reflectors and the lease. They use the log of their
transport; transports to one server share it.
Commands that give up use the same words, from :func:`connection_failure`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from typing import Final

from kubesched.api.wire import ApiError, NotLeaderError, Transport

from .http_reading import AnswerTooLongError

__all__ = ["ConnectionLog", "connection_failure", "log_of", "reason_of"]

logger = logging.getLogger("kubesched.client")

#: Seconds after which a lasting state is logged again.
REMIND_SECONDS: Final = 300.0
#: Least seconds between two lines about a state that comes and goes.
_AGAIN_SECONDS: Final = 10.0

#: Advice to a user about each state.
_ADVICE: Final = {
    "the credentials are refused": "check token, client certificate or exec plugin of the kubeconfig, and whether they have expired",
    "the TLS connection fails": "check certificate-authority, server and tls-server-name of the kubeconfig",
    "the name of the server is unknown": "check the server address of the kubeconfig, and DNS",
    "nothing accepts connections": "check the server address of the kubeconfig, and whether the API server runs",
    "the connection is lost": "",
}
_CREDENTIALS, _TLS, _NAME, _REFUSED, _LOST = _ADVICE


def connection_failure(server: str, error: BaseException) -> str:
    """Describe the state of the connection that an error shows, with advice; "" for an error of one request."""
    state = _state_of(error)
    if not state:
        return ""
    advice = f"; {_ADVICE[state]}" if _ADVICE[state] else ""
    return f"{server}: {state}: {reason_of(error)}{advice}"


def reason_of(error: BaseException) -> str:
    """Return the words of an error for a log. Some errors, such as those of a time-out, have none of their own."""
    words = str(getattr(error, "strerror", None) or error)
    return words or ("timed out" if isinstance(error, TimeoutError) else repr(error))


class ConnectionLog:
    """Log of the state of the connections to ``server``, an address for display."""

    def __init__(self, server: str = "") -> None:
        self._server = f"API server {server}" if server else "API server"
        self._state = ""
        #: Time of the last line about each state.
        self._logged: dict[str, float] = {}
        self._more = 0
        self._no_streams = False

    def not_streamed(self, error: ApiError) -> None:
        """Log, once for all kinds, that the API server refuses to stream lists. Then they come in pages."""
        level = logging.DEBUG if self._no_streams else logging.INFO
        self._no_streams = True
        logger.log(level, "%s does not stream lists, they come in pages: %s", self._server, error)

    def failed(self, error: BaseException) -> bool:
        """Note a failure. Return False if it does not concern the connection, so that the caller has to log it."""
        state = _state_of(error)
        if not state:
            return False
        now = asyncio.get_running_loop().time()
        quiet = REMIND_SECONDS if state == self._state else _AGAIN_SECONDS
        self._state = state
        if now - self._logged.get(state, float("-inf")) < quiet:
            self._more += 1
            logger.debug("%s", connection_failure(self._server, error))
            return True
        self._logged[state] = now
        more, self._more = self._more, 0
        again = f" ({more} more failures since the last line)" if more else ""
        logger.warning("%s; it is tried again%s", connection_failure(self._server, error), again)
        return True

    def worked(self) -> None:
        """Note that a request was answered."""
        if self._state:
            self._state, self._more = "", 0
            logger.info("%s: the connection works", self._server)


def log_of(transport: Transport) -> ConnectionLog:
    """Return the log of a transport's connection, ``transport.connection_log``; a new one if it has none."""
    log: ConnectionLog | None = getattr(transport, "connection_log", None)
    return log if log is not None else ConnectionLog()


def _state_of(error: BaseException) -> str:
    """Return the state that an error shows; "" for an error of a single request."""
    if isinstance(error, ApiError):
        return _CREDENTIALS if error.code == 401 else ""
    if not isinstance(error, OSError) or isinstance(error, NotLeaderError | AnswerTooLongError):
        return ""
    causes = list(_causes(error))
    if any(isinstance(one, ssl.SSLError) for one in causes):
        return _TLS
    if any(isinstance(one, socket.gaierror) for one in causes):
        return _NAME
    return _REFUSED if any(isinstance(one, ConnectionRefusedError) for one in causes) else _LOST


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # an error may be its own cause
        seen.add(id(error))
        yield error
        error = error.__cause__
