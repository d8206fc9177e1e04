"""ServiceAccounts: every namespace has one named ``default``, as clients wait for it. Rules: upstream ``serviceaccount``."""

from __future__ import annotations

from ...api.kinds import NAMESPACES, SERVICE_ACCOUNTS
from ...api.wire import Item
from .base import Controller
from .context import Context, tolerate

__all__ = ["ServiceAccounts"]

_DEFAULT = "default"


class ServiceAccounts(Controller):
    """Creates the default account of each namespace, again when it was deleted."""

    name = "serviceaccount"
    component = "service-account-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._namespaces = self.watch(NAMESPACES, self.enqueue)
        self._accounts = self.watch(SERVICE_ACCOUNTS, self._account_changed)

    def _account_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is None and item.name == _DEFAULT:
            self.queue.add(item.namespace)

    async def reconcile(self, key: str) -> None:
        namespace = self._namespaces.get(key)
        if namespace is None or namespace.typed.metadata.deletion_timestamp is not None:
            return
        if self._accounts.get(f"{key}/{_DEFAULT}") is None:
            with tolerate("AlreadyExists"):
                await self.context.create(SERVICE_ACCOUNTS, key, {"metadata": {"name": _DEFAULT}})
