"""Connection of a command to the API server of a kubeconfig. Callers: ``import`` and what reads a cluster; ``kubelets``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubesched.api.wire import ApiError, Transport

from .errors import CliError

__all__ = ["connected"]


@asynccontextmanager
async def connected(kubeconfig: str, context: str | None) -> AsyncIterator[tuple[Transport, str]]:
    """Give a transport and the server's address.

    Raises:
        CliError: when the kubeconfig cannot be used or the server cannot be reached.
    """
    # Imported only here: the HTTP client is an extra.
    from kubesched.client.access import AccessError, load_kubeconfig  # noqa: PLC0415
    from kubesched.client.connection_log import connection_failure  # noqa: PLC0415
    from kubesched.client.http import HttpTransport  # noqa: PLC0415

    try:
        access = await load_kubeconfig(kubeconfig, context=context or "")
        transport = HttpTransport.connect(access)
    except AccessError as error:
        raise CliError(str(error)) from None
    try:
        async with transport:
            yield transport, access.url
    except (ApiError, OSError) as error:
        if text := connection_failure(f"API server {access.url}", error):
            raise CliError(text) from None
        raise
