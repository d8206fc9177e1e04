"""Command-line flags and feature gates of older schedulers, as data, and the configuration that they amount to.

The flag parser defines the flags of :data:`RETIRED_FLAGS`. Without ``--config`` it hands the values that were set to
:func:`document_from_flags`. Source: rules/configuration §9.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubesched.scheduler.config.errors import ConfigError
from kubesched.scheduler.config.fielderrors import invalid, required
from kubesched.scheduler.config.older import RetiredFlag
from kubesched.scheduler.config.types import API_VERSION, GROUP, KIND

__all__ = ["RETIRED_FLAGS", "RETIRED_GATES", "SPREAD_GATE", "document_from_flags", "flag_warnings"]

#: Retired feature gate that replaced SelectorSpread by PodTopologySpread.
SPREAD_GATE: Final = "DefaultPodTopologySpread"

_POLICY: Final = "the Policy API was removed in 1.23; kubesched config convert writes the configuration it becomes"
_INSECURE: Final = "health and metrics are served with TLS only; use --bind-address and --secure-port"

#: Every retired flag, in alphabetical order.
RETIRED_FLAGS: Final[tuple[RetiredFlag, ...]] = (
    RetiredFlag("address", "string", "0.0.0.0", "", "", f"--address is ignored: {_INSECURE}"),
    RetiredFlag(
        "algorithm-provider",
        "string",
        "DefaultProvider",
        "1.22",
        "algorithmSource.provider",
        "--algorithm-provider is converted to a profile; name plugins in --config instead",
    ),
    RetiredFlag(
        "hard-pod-affinity-symmetric-weight",
        "int",
        1,
        "",
        "profiles[0].pluginConfig[InterPodAffinity].args.hardPodAffinityWeight",
        "--hard-pod-affinity-symmetric-weight sets InterPodAffinityArgs.hardPodAffinityWeight; set it in --config",
    ),
    RetiredFlag(
        "lock-object-name",
        "string",
        "kube-scheduler",
        "",
        "leaderElection.resourceName",
        "--lock-object-name is called --leader-elect-resource-name",
    ),
    RetiredFlag(
        "lock-object-namespace",
        "string",
        "kube-system",
        "",
        "leaderElection.resourceNamespace",
        "--lock-object-namespace is called --leader-elect-resource-namespace",
    ),
    RetiredFlag(
        "policy-config-file",
        "string",
        "",
        "1.23",
        "algorithmSource.policy.file.path",
        f"--policy-config-file: {_POLICY}",
    ),
    RetiredFlag(
        "policy-configmap",
        "string",
        "",
        "1.23",
        "algorithmSource.policy.configMap.name",
        f"--policy-configmap: {_POLICY}",
    ),
    RetiredFlag(
        "policy-configmap-namespace",
        "string",
        "kube-system",
        "1.23",
        "algorithmSource.policy.configMap.namespace",
        f"--policy-configmap-namespace: {_POLICY}",
    ),
    RetiredFlag("port", "int", 10251, "", "", f"--port is ignored: {_INSECURE}"),
    RetiredFlag(
        "scheduler-name",
        "string",
        "default-scheduler",
        "",
        "profiles[0].schedulerName",
        "--scheduler-name sets profiles[0].schedulerName; set it in --config",
    ),
    RetiredFlag(
        "use-legacy-policy-config",
        "bool",
        False,
        "1.23",
        "",
        "--use-legacy-policy-config prefers --policy-config-file over --policy-configmap",
    ),
)

#: Warnings about retired feature gates, by gate. The gates' settings go to ``LoadOptions.retired_gates``.
RETIRED_GATES: Final[Mapping[str, str]] = {
    SPREAD_GATE: (
        f"feature gate {SPREAD_GATE} was removed; with it off, older configurations use SelectorSpread instead of "
        "PodTopologySpread's default constraints"
    ),
}

_BY_NAME: Final = {flag.name: flag for flag in RETIRED_FLAGS}


def flag_warnings(given: Mapping[str, Any]) -> list[str]:
    """Return the warnings for the retired flags that were set, in the table's order; ``given`` has no dashes."""
    return [
        f"flag --{flag.name} was removed {f'in Kubernetes {flag.removed_in}' if flag.removed_in else 'after Kubernetes 1.19'}: "
        f"{flag.message}"
        for flag in RETIRED_FLAGS
        if flag.name in given and not (flag.name == "port" and given["port"] == 0)
    ]


def document_from_flags(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Make the configuration document that retired flags amount to; None when they ask for nothing.

    Hand it to :func:`.config.load.load_any` (or ``load_any_with_api`` for a ConfigMap). With a provider or a Policy
    it is a v1alpha1 document, with the default plugins of that version; otherwise it is a v1 document. With
    ``--config`` all of these flags are ignored, as older schedulers did.

    Raises:
        ConfigError: stage ``validate``, for values that contradict each other or are out of range.
        KeyError: for a flag that is not in :data:`RETIRED_FLAGS` (a programming error).
    """
    values = {name: given[name] for name in given if _BY_NAME[name].maps_to or name == "use-legacy-policy-config"}
    weight = values.get("hard-pod-affinity-symmetric-weight")
    if weight is not None and not 0 <= weight <= 100:
        raise ConfigError("validate", [invalid("hardPodAffinitySymmetricWeight", weight, "not in valid range [0-100]")])
    source = _algorithm_source(values)
    election = {
        field: values[flag]
        for field, flag in (("resourceNamespace", "lock-object-namespace"), ("resourceName", "lock-object-name"))
        if values.get(flag)
    }
    document: dict[str, Any] = {"leaderElection": election} if election else {}
    name = values.get("scheduler-name")
    if source is not None:
        document |= {"algorithmSource": source}
        document |= {"schedulerName": name} if name else {}
        document |= {"hardPodAffinitySymmetricWeight": weight} if weight is not None else {}
        return {"apiVersion": f"{GROUP}/v1alpha1", "kind": KIND, **document}
    profile: dict[str, Any] = {"schedulerName": name} if name else {}
    if weight is not None:
        profile["pluginConfig"] = [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": weight}}]
    document |= {"profiles": [profile]} if profile else {}
    return {"apiVersion": API_VERSION, "kind": KIND, **document} if document else None


def _algorithm_source(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Choose a Policy file, else a Policy's ConfigMap, else a provider; None when none of them is named."""
    file, config_map = values.get("policy-config-file"), values.get("policy-configmap")
    legacy = bool(values.get("use-legacy-policy-config"))
    if legacy and not file:
        text = required("policyConfigFile", "required when --use-legacy-policy-config is true")
        raise ConfigError("validate", [text], details=["give --policy-config-file, or leave the other flag out"])
    if legacy or (file and not config_map):
        return {"policy": {"file": {"path": file}}}
    if config_map:
        namespace = values.get("policy-configmap-namespace") or _BY_NAME["policy-configmap-namespace"].default
        return {"policy": {"configMap": {"namespace": namespace, "name": config_map}}}
    provider = values.get("algorithm-provider")
    return {"provider": provider} if provider else None
