"""ServiceAccounts: every namespace has one named ``default``, as clients wait for it. Rules: upstream ``serviceaccount``."""

from __future__ import annotations

from ...api.kinds import NAMESPACES, SERVICE_ACCOUNTS
from ...api.wire import ApiError, Item
from .base import Controller
from .context import Context

__all__ = ["ServiceAccounts"]

_DEFAULT = "default"


class ServiceAccounts(Controller):
    """Creates the default account of each namespace, again when it was deleted."""

    name = "serviceaccount"
    component = "service-account-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._namespaces = context.cache(NAMESPACES)
        self._accounts = context.cache(SERVICE_ACCOUNTS)
        self.watch(NAMESPACES, self.enqueue)
        self.watch(SERVICE_ACCOUNTS, self._account_changed)

    def _account_changed(self, old: Item | None, new: Item | None) -> None:
        if new is None and old is not None and old.name == _DEFAULT:
            self.queue.add(old.namespace)

    async def reconcile(self, key: str) -> None:
        namespace = self._namespaces.get(key)
        if namespace is None or namespace.typed.metadata.deletion_timestamp is not None:
            return
        if self._accounts.get(f"{key}/{_DEFAULT}") is None:
            try:
                await self.context.create(SERVICE_ACCOUNTS, key, {"metadata": {"name": _DEFAULT}})
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
