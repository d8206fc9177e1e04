"""Types of KubeSchedulerConfiguration (``kubescheduler.config.k8s.io/v1``): immutable objects.

The field defaults are upstream's defaults that do not depend on other fields; ``defaults`` fills in the others. Change
a configuration with ``msgspec.structs.replace`` and check it again with ``validate``. Source: rules/configuration §1,
§2 and §5.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import msgspec

from .args import Go, Int32, Int64, Part
from .durations import Duration
from .errors import ArgsTypeError

__all__ = [
    "API_VERSION",
    "DEFAULT_SCHEDULER_NAME",
    "GROUP",
    "KIND",
    "POINTS",
    "ClientConnection",
    "Extender",
    "ExtenderManagedResource",
    "ExtenderTLSConfig",
    "KubeSchedulerConfiguration",
    "LeaderElection",
    "Plugin",
    "PluginConfig",
    "PluginSet",
    "Plugins",
    "ProfileConfig",
]

GROUP: Final = "kubescheduler.config.k8s.io"
API_VERSION: Final = f"{GROUP}/v1"
KIND: Final = "KubeSchedulerConfiguration"
DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"

#: Extension points in the order in which upstream examines them when it builds a profile.
POINTS: Final = (
    "preFilter",
    "filter",
    "postFilter",
    "reserve",
    "preScore",
    "score",
    "preBind",
    "bind",
    "postBind",
    "permit",
    "preEnqueue",
    "queueSort",
    "placementGenerate",
    "placementScore",
)

T = TypeVar("T")


class LeaderElection(Part, frozen=True):
    leader_elect: bool = True
    lease_duration: Duration = Duration(15_000_000_000)
    renew_deadline: Duration = Duration(10_000_000_000)
    retry_period: Duration = Duration(2_000_000_000)
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


class ClientConnection(Part, frozen=True):
    """Connection to the API server. A negative ``qps`` means no limit on this side."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: Annotated[float, Go("float32")] = 50.0
    burst: Int32 = 100


class Plugin(Part, frozen=True):
    """Plugin's name and, for score points, its weight; 0 means not given (1 when the profile is built)."""

    name: str = ""
    weight: Int32 = 0


class PluginSet(Part, frozen=True):
    enabled: tuple[Plugin, ...] = ()
    disabled: tuple[Plugin, ...] = ()

    @property
    def disables_all(self) -> bool:
        """True if ``*`` is disabled: every default at this point is off."""
        return any(plugin.name == "*" for plugin in self.disabled)


class Plugins(Part, frozen=True):
    """Plugin sets by extension point, and ``multi_point`` for all points that a plugin implements."""

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()

    def at(self, point: str) -> PluginSet:
        """Return the set of a point by its name in the file, such as ``preFilter``.

        Raises:
            KeyError: when there is no such point.
        """
        plugin_set: PluginSet = getattr(self, _POINT_FIELDS[point])
        return plugin_set

    def items(self) -> list[tuple[str, PluginSet]]:
        """Return all fifteen sets with their names in the file."""
        return [(point, self.at(point)) for point in _POINT_FIELDS]

    def enabled_names(self) -> set[str]:
        """Return the names of all plugins in enabled lists."""
        return {plugin.name for _, plugin_set in self.items() for plugin in plugin_set.enabled}


_POINT_FIELDS: Final = dict(zip(Plugins.__struct_encode_fields__, Plugins.__struct_fields__, strict=True))


class PluginConfig(Part, frozen=True):
    """Plugin's arguments: typed for in-tree plugins, plain data (or None) for all others."""

    name: str = ""
    args: Any = None


class ProfileConfig(Part, frozen=True):
    """Profile: a scheduler name with its plugins. ``percentage_of_nodes_to_score`` None means the global value."""

    scheduler_name: str = ""
    percentage_of_nodes_to_score: Int32 | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()

    def args_for(self, name: str) -> Any:
        """Return the arguments of a plugin: typed for in-tree plugins that have some, None when there are none."""
        return next((entry.args for entry in self.plugin_config if entry.name == name), None)

    def args_as(self, name: str, type_: type[T]) -> T:
        """Return the arguments of a plugin, checked to be of its type.

        Raises:
            ArgsTypeError: ``want args to be of type XArgs, got …``.
        """
        args = self.args_for(name)
        if not isinstance(args, type_):
            raise ArgsTypeError(type_, args)
        return args


class ExtenderManagedResource(Part, frozen=True):
    name: str = ""
    ignored_by_scheduler: bool = False


class ExtenderTLSConfig(Part, frozen=True):
    """TLS settings of an extender. The data fields hold decoded bytes and win over the files."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""


class Extender(Part, frozen=True):
    """HTTP service that takes part in scheduling. A verb that is empty is not offered."""

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: Int64 = 0
    bind_verb: str = ""
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    tls_config: ExtenderTLSConfig | None = None
    http_timeout: Duration = Duration()
    node_cache_capable: bool = False
    managed_resources: tuple[ExtenderManagedResource, ...] = ()
    ignorable: bool = False

    @property
    def timeout_seconds(self) -> float:
        """Longest time of one call in seconds: 5 unless configured."""
        return self.http_timeout.seconds or 5.0


class KubeSchedulerConfiguration(Part, frozen=True):
    """Whole configuration. ``percentage_of_nodes_to_score`` 0 means adaptive."""

    parallelism: Int32 = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: Annotated[bool, Go(embedded="DebuggingConfiguration")] = True
    enable_contention_profiling: Annotated[bool, Go(embedded="DebuggingConfiguration")] = True
    percentage_of_nodes_to_score: Int32 = 0
    pod_initial_backoff_seconds: Int64 = 1
    pod_max_backoff_seconds: Int64 = 10
    profiles: tuple[ProfileConfig, ...] = ()
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: bool = False

    def profile(self, scheduler_name: str) -> ProfileConfig | None:
        """Return the profile that serves a pod's ``schedulerName``, or None."""
        return next((profile for profile in self.profiles if profile.scheduler_name == scheduler_name), None)
