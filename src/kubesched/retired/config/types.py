"""Types of the older configuration versions: v1alpha1, v1alpha2, v1beta1, v1beta2, v1beta3.

Each type has the fields that its version had; ``convert`` makes today's types of them. ``go_name`` is the struct's
name in upstream's type messages. Source: rules/configuration §9.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from kubesched.scheduler.config.args import ARGS_TYPES, Int32, Int64, Part, PodTopologySpreadArgs
from kubesched.scheduler.config.decode import Scheme
from kubesched.scheduler.config.types import (
    GROUP,
    ClientConnection,
    Extender,
    ExtenderManagedResource,
    ExtenderTLSConfig,
    LeaderElection,
    PluginConfig,
    PluginSet,
)

from .retired_args import RETIRED_ARGS

__all__ = [
    "OLD_VERSIONS",
    "SCHEMES",
    "AddressedConfiguration",
    "AlgorithmSource",
    "AlphaConfiguration",
    "LegacyConfiguration",
    "LegacyLeaderElection",
    "LegacyPodTopologySpreadArgs",
    "OldConfiguration",
    "PolicyConfigMapSource",
    "PolicyExtender",
    "PolicyFileSource",
    "PolicySource",
    "ProfiledConfiguration",
    "V1Alpha1Configuration",
    "V1Alpha2Configuration",
    "V1Beta1Configuration",
    "V1Beta2Configuration",
    "V1Beta3Configuration",
]


# -- plugins and profiles ----------------------------------------------------------------------------------------


class V1Alpha1Plugins(Part, frozen=True):
    """Points of v1alpha1. Its ``postFilter`` ran after filtering succeeded: today's ``preScore``."""

    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    unreserve: PluginSet = PluginSet()


class V1Beta1Plugins(Part, frozen=True):
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


class V1Alpha2Plugins(V1Beta1Plugins, frozen=True):
    unreserve: PluginSet = PluginSet()


class V1Beta2Plugins(V1Beta1Plugins, frozen=True):
    pre_enqueue: PluginSet = PluginSet()


class V1Beta3Plugins(V1Beta2Plugins, frozen=True):
    multi_point: PluginSet = PluginSet()


class _Profile(Part, frozen=True):
    scheduler_name: str = ""
    plugin_config: tuple[PluginConfig, ...] = ()


class V1Alpha2Profile(_Profile, frozen=True):
    go_name: ClassVar[str] = "v1alpha2.KubeSchedulerProfile"
    plugins: V1Alpha2Plugins = V1Alpha2Plugins()


class V1Beta1Profile(_Profile, frozen=True):
    go_name: ClassVar[str] = "v1beta1.KubeSchedulerProfile"
    plugins: V1Beta1Plugins = V1Beta1Plugins()


class V1Beta2Profile(_Profile, frozen=True):
    go_name: ClassVar[str] = "v1beta2.KubeSchedulerProfile"
    plugins: V1Beta2Plugins = V1Beta2Plugins()


class V1Beta3Profile(_Profile, frozen=True):
    go_name: ClassVar[str] = "v1beta3.KubeSchedulerProfile"
    plugins: V1Beta3Plugins = V1Beta3Plugins()


class LegacyPodTopologySpreadArgs(PodTopologySpreadArgs, frozen=True):
    """Arguments up to v1beta1. The default of ``defaultingType`` depended on a feature gate and the constraints."""

    go_name: ClassVar[str] = "v1beta1.PodTopologySpreadArgs"
    defaulting_type: str = ""


# -- sources of v1alpha1's plugins -------------------------------------------------------------------------------


class PolicyFileSource(Part, frozen=True):
    path: str = ""


class PolicyConfigMapSource(Part, frozen=True):
    namespace: str = ""
    name: str = ""


class PolicySource(Part, frozen=True):
    file: PolicyFileSource | None = None
    config_map: PolicyConfigMapSource | None = None


class AlgorithmSource(Part, frozen=True):
    """Named provider or a Policy; neither means the provider ``DefaultProvider``."""

    provider: str | None = None
    policy: PolicySource | None = None


# -- other parts -------------------------------------------------------------------------------------------------


class LegacyLeaderElection(LeaderElection, frozen=True):
    """Leader election with the older names ``lockObjectNamespace`` and ``lockObjectName`` beside today's."""

    go_name: ClassVar[str] = "v1alpha1.LeaderElectionConfiguration"
    lock_object_namespace: str = ""
    lock_object_name: str = ""


class PolicyExtender(Part, frozen=True):
    """Extender in the style of the Policy API: ``enableHttps``, and ``httpTimeout`` in nanoseconds."""

    go_name: ClassVar[str] = "v1.LegacyExtender"
    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: Int64 = 0
    bind_verb: str = ""
    enable_https: bool = False
    tls_config: ExtenderTLSConfig | None = None
    http_timeout: Int64 = 0
    node_cache_capable: bool = False
    managed_resources: tuple[ExtenderManagedResource, ...] = ()
    ignorable: bool = False


# -- the configurations ------------------------------------------------------------------------------------------


class LegacyConfiguration(Part, frozen=True):
    """Fields that all older versions have."""

    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: Int32 = 0
    pod_initial_backoff_seconds: Int64 = 1
    pod_max_backoff_seconds: Int64 = 10


class AddressedConfiguration(LegacyConfiguration, frozen=True):
    """Configuration up to v1beta2, which had the addresses of health and metrics, served without TLS."""

    healthz_bind_address: str | None = None
    metrics_bind_address: str | None = None


class V1Beta3Configuration(LegacyConfiguration, frozen=True):
    go_name: ClassVar[str] = "v1beta3.KubeSchedulerConfiguration"
    parallelism: Int32 = 16
    profile_type: ClassVar[type[V1Beta3Profile]] = V1Beta3Profile
    profiles: tuple[V1Beta3Profile, ...] = ()
    extenders: tuple[Extender, ...] = ()


class V1Beta2Configuration(AddressedConfiguration, frozen=True):
    go_name: ClassVar[str] = "v1beta2.KubeSchedulerConfiguration"
    parallelism: Int32 = 16
    profile_type: ClassVar[type[V1Beta2Profile]] = V1Beta2Profile
    profiles: tuple[V1Beta2Profile, ...] = ()
    extenders: tuple[Extender, ...] = ()


class V1Beta1Configuration(AddressedConfiguration, frozen=True):
    go_name: ClassVar[str] = "v1beta1.KubeSchedulerConfiguration"
    parallelism: Int32 = 16
    profile_type: ClassVar[type[V1Beta1Profile]] = V1Beta1Profile
    profiles: tuple[V1Beta1Profile, ...] = ()
    extenders: tuple[Extender, ...] = ()


class AlphaConfiguration(AddressedConfiguration, frozen=True):
    leader_election: LegacyLeaderElection = LegacyLeaderElection()
    disable_preemption: bool = False
    bind_timeout_seconds: Int64 | None = None


class V1Alpha2Configuration(AlphaConfiguration, frozen=True):
    go_name: ClassVar[str] = "v1alpha2.KubeSchedulerConfiguration"
    profile_type: ClassVar[type[V1Alpha2Profile]] = V1Alpha2Profile
    profiles: tuple[V1Alpha2Profile, ...] = ()
    extenders: tuple[PolicyExtender, ...] = ()


class V1Alpha1Configuration(AlphaConfiguration, frozen=True):
    """Configuration v1alpha1. ``plugins`` or ``pluginConfig`` None means not given, as a Policy demands."""

    go_name: ClassVar[str] = "v1alpha1.KubeSchedulerConfiguration"
    scheduler_name: str = ""
    algorithm_source: AlgorithmSource = AlgorithmSource()
    hard_pod_affinity_symmetric_weight: Int32 | None = None
    plugins: V1Alpha1Plugins | None = None
    plugin_config: tuple[PluginConfig, ...] | None = None
    failure_domains: Any = None


ProfiledConfiguration = V1Alpha2Configuration | V1Beta1Configuration | V1Beta2Configuration | V1Beta3Configuration
OldConfiguration = V1Alpha1Configuration | ProfiledConfiguration

#: Type of the configuration, by short version.
OLD_VERSIONS: Final[dict[str, type[OldConfiguration]]] = {
    "v1alpha1": V1Alpha1Configuration,
    "v1alpha2": V1Alpha2Configuration,
    "v1beta1": V1Beta1Configuration,
    "v1beta2": V1Beta2Configuration,
    "v1beta3": V1Beta3Configuration,
}

_UP_TO_V1BETA1: Final[dict[str, type[Any]]] = {
    **ARGS_TYPES,
    **RETIRED_ARGS,
    "PodTopologySpread": LegacyPodTopologySpreadArgs,
}

#: Scheme of plugin arguments, by short version.
SCHEMES: Final[dict[str, Scheme]] = {
    version: Scheme(f"{GROUP}/{version}", ARGS_TYPES if version in ("v1beta2", "v1beta3") else _UP_TO_V1BETA1)
    for version in OLD_VERSIONS
}
