"""Configuration of the scheduler: types, reading, defaults, checks, writing, plugin lists and feature gates.

This package reads configuration files and refuses invalid ones. It builds no plugins: the framework takes the expanded
profiles from here. Source: rules/configuration §1 to §6 and §8.
"""

from .args import (
    ARGS_TYPES,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PluginArgs,
    PodTopologySpreadArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
    VolumeBindingArgs,
)
from .dump import dump_config, dump_yaml
from .durations import Duration, DurationError
from .errors import ConfigError
from .features import (
    DEFAULT_GATES,
    FEATURES,
    Feature,
    FeatureGateError,
    FeatureGates,
    UnavailableGateError,
    parse_feature_gates,
)
from .intree import IN_TREE, IN_TREE_CAPABILITIES, InTreePlugin
from .load import decode_config, default_config, load_config, load_config_data, load_config_file
from .profiles import expand_profile, expand_profiles, ignore_extender_resources, plugin_type
from .types import (
    API_VERSION,
    DEFAULT_SCHEDULER_NAME,
    KIND,
    POINTS,
    ClientConnection,
    Extender,
    ExtenderManagedResource,
    ExtenderTLSConfig,
    KubeSchedulerConfiguration,
    LeaderElection,
    Plugin,
    PluginConfig,
    Plugins,
    PluginSet,
    ProfileConfig,
)
from .validate import validate, validation_errors
from .validate_args import validate_args

__all__ = [
    "API_VERSION",
    "ARGS_TYPES",
    "DEFAULT_GATES",
    "DEFAULT_SCHEDULER_NAME",
    "FEATURES",
    "IN_TREE",
    "IN_TREE_CAPABILITIES",
    "KIND",
    "POINTS",
    "ClientConnection",
    "ConfigError",
    "DefaultPreemptionArgs",
    "Duration",
    "DurationError",
    "DynamicResourcesArgs",
    "Extender",
    "ExtenderManagedResource",
    "ExtenderTLSConfig",
    "Feature",
    "FeatureGateError",
    "FeatureGates",
    "InTreePlugin",
    "InterPodAffinityArgs",
    "KubeSchedulerConfiguration",
    "LeaderElection",
    "NodeAffinityArgs",
    "NodeResourcesBalancedAllocationArgs",
    "NodeResourcesFitArgs",
    "Plugin",
    "PluginArgs",
    "PluginConfig",
    "PluginSet",
    "Plugins",
    "PodTopologySpreadArgs",
    "ProfileConfig",
    "RequestedToCapacityRatioParam",
    "ResourceSpec",
    "ScoringStrategy",
    "UnavailableGateError",
    "UtilizationShapePoint",
    "VolumeBindingArgs",
    "decode_config",
    "default_config",
    "dump_config",
    "dump_yaml",
    "expand_profile",
    "expand_profiles",
    "ignore_extender_resources",
    "load_config",
    "load_config_data",
    "load_config_file",
    "parse_feature_gates",
    "plugin_type",
    "validate",
    "validate_args",
    "validation_errors",
]
