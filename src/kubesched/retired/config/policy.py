"""Policy API: predicates and priorities by name, and the plugins that they became.

``load`` calls :func:`parse_policy` with a file's or ConfigMap's text, ``convert`` makes a profile of the result.
Source: rules/configuration §10.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from msgspec.structs import replace

from kubesched.api.yamltext import Document
from kubesched.scheduler.config.args import Int32, Int64, Part, ResourceSpec, UtilizationShapePoint
from kubesched.scheduler.config.decode import duplicate_keys, parse_document, version_and_kind
from kubesched.scheduler.config.errors import ConfigError
from kubesched.scheduler.config.fielderrors import invalid
from kubesched.scheduler.config.shapes import Decoder, WrongTypeError, fold_names
from kubesched.scheduler.config.types import Plugin, PluginConfig

from .default_plugins import VOLUME_LIMITS
from .profiles import Notes
from .retired_args import (
    NodeLabelArgs,
    RequestedToCapacityRatioArgs,
    ServiceAffinityArgs,
    plain_args,
    retired_args_errors,
)
from .types import PolicyExtender

__all__ = [
    "POLICY_KIND",
    "POLICY_VERSION",
    "ChosenPlugins",
    "Policy",
    "decode_policy",
    "parse_policy",
    "policy_plugins",
]

POLICY_VERSION: Final = "v1"
POLICY_KIND: Final = "Policy"
_WRAPPER: Final = "couldn't create scheduler from policy: "
_MAX_WEIGHT: Final = (2**63 - 1) // 10
_MAX_PLUGIN_WEIGHT: Final = 2**31 - 1


# -- the document ------------------------------------------------------------------------------------------------


class ServiceAffinity(Part, frozen=True):
    labels: tuple[str, ...] = ()


class LabelsPresence(Part, frozen=True):
    labels: tuple[str, ...] = ()
    presence: bool = False


class PredicateArgument(Part, frozen=True):
    service_affinity: ServiceAffinity | None = None
    labels_presence: LabelsPresence | None = None


class PredicatePolicy(Part, frozen=True):
    name: str = ""
    argument: PredicateArgument | None = None


class ServiceAntiAffinity(Part, frozen=True):
    label: str = ""


class LabelPreference(Part, frozen=True):
    label: str = ""
    presence: bool = False


class RatioArguments(Part, frozen=True):
    shape: tuple[UtilizationShapePoint, ...] = ()
    resources: tuple[ResourceSpec, ...] = ()


class PriorityArgument(Part, frozen=True):
    service_anti_affinity: ServiceAntiAffinity | None = None
    label_preference: LabelPreference | None = None
    requested_to_capacity_ratio_arguments: RatioArguments | None = None


class PriorityPolicy(Part, frozen=True):
    name: str = ""
    weight: Int64 = 0
    argument: PriorityArgument | None = None


class Policy(Part, frozen=True):
    """Policy.

    If ``predicates`` is None, the default predicates apply. If it is empty, only the mandatory predicates apply. The same
    holds for ``priorities``.
    """

    go_name: ClassVar[str] = "v1.Policy"
    predicates: tuple[PredicatePolicy, ...] | None = None
    priorities: tuple[PriorityPolicy, ...] | None = None
    extenders: tuple[PolicyExtender, ...] = ()
    hard_pod_affinity_symmetric_weight: Int32 = 0
    always_check_all_predicates: bool = False


def parse_policy(text: str | bytes, notes: Notes, *, source: str = "") -> Policy:
    """Read a Policy's text; names match without regard to case. ``source`` names the Policy in warnings.

    Unknown fields are ignored with a warning, as the API ignored them.

    Raises:
        ConfigError: ``invalid policy: …``, stage ``decode``; or stage ``validate`` for a value out of range.
    """
    try:
        quoted, document = parse_document(text)
        return decode_policy(document, quoted, notes, source=source)
    except ConfigError as error:
        if error.stage != "decode":
            raise
        raise ConfigError("decode", [f"invalid policy: {error}"], details=error.details) from None


def decode_policy(document: Document, text: str, notes: Notes, *, source: str = "") -> Policy:
    """Decode a Policy from a parsed document. Some messages quote ``text``.

    Raises:
        ConfigError: stage ``decode`` or ``validate``.
    """
    twice: list[str] = []
    data = fold_names(document.data, Policy, twice)
    version, kind = version_and_kind(data, text, advice=_ADVICE)
    if (version, kind) != (POLICY_VERSION, POLICY_KIND):
        text = f'no kind "{kind}" is registered for version "{version}"'
        raise ConfigError("decode", [text], details=[_ADVICE])
    decoder = Decoder()
    try:
        policy: Policy = decoder.decode(data, Policy)
    except WrongTypeError as error:
        raise ConfigError("decode", [error.text], details=[error.detail]) from None
    at = f"{source}: " if source else ""
    for detail in (*duplicate_keys(document), *decoder.details):
        notes.warn(f"{at}{detail} (ignored)")
    for path in twice:
        notes.warn(f"{at}{path}: given twice in different spelling; the last one counts")
    weight = policy.hard_pod_affinity_symmetric_weight
    if not 0 <= weight <= 100:
        raise ConfigError("validate", [invalid("hardPodAffinitySymmetricWeight", weight, "not in valid range [0-100]")])
    if policy.always_check_all_predicates:
        notes.warn(
            f"{at}alwaysCheckAllPredicates is ignored: the first filter that rejects a node gives the reason; which nodes "
            "are feasible does not depend on it"
        )
    return policy


_ADVICE: Final = f"a Policy starts with the lines apiVersion: {POLICY_VERSION} and kind: {POLICY_KIND}"


# -- names -------------------------------------------------------------------------------------------------------

_PF, _F, _R, _PB, _PS, _S = "pre_filter", "filter", "reserve", "pre_bind", "pre_score", "score"

#: Plugins and their points by predicate, in the order in which filters run. The order in the Policy has no effect.
_PREDICATES: Final[dict[str, tuple[tuple[str, tuple[str, ...]], ...]]] = {
    "CheckNodeUnschedulable": (("NodeUnschedulable", (_F,)),),
    "GeneralPredicates": (
        ("NodeResourcesFit", (_PF, _F)),
        ("NodeName", (_F,)),
        ("NodePorts", (_PF, _F)),
        ("NodeAffinity", (_PF, _F)),
    ),
    "HostName": (("NodeName", (_F,)),),
    "PodFitsHostPorts": (("NodePorts", (_PF, _F)),),
    "MatchNodeSelector": (("NodeAffinity", (_PF, _F)),),
    "PodFitsResources": (("NodeResourcesFit", (_PF, _F)),),
    "NoDiskConflict": (("VolumeRestrictions", (_F,)),),
    "PodToleratesNodeTaints": (("TaintToleration", (_F,)),),
    "CheckNodeLabelPresence": (("NodeLabel", (_F,)),),
    "CheckServiceAffinity": (("ServiceAffinity", (_PF, _F)),),
    "MaxEBSVolumeCount": (("EBSLimits", (_F,)),),
    "MaxGCEPDVolumeCount": (("GCEPDLimits", (_F,)),),
    "MaxCSIVolumeCountPred": (("NodeVolumeLimits", (_F,)),),
    "MaxAzureDiskVolumeCount": (("AzureDiskLimits", (_F,)),),
    "MaxCinderVolumeCount": (("CinderLimits", (_F,)),),
    "CheckVolumeBinding": (("VolumeBinding", (_PF, _F, _R, _PB)),),
    "NoVolumeZoneConflict": (("VolumeZone", (_F,)),),
    "EvenPodsSpread": (("PodTopologySpread", (_PF, _F)),),
    "MatchInterPodAffinity": (("InterPodAffinity", (_PF, _F)),),
}
_PREDICATE_ALIASES: Final = {"PodFitsPorts": "PodFitsHostPorts"}
#: Predicates that are named through their arguments only.
_CUSTOM_PREDICATES: Final = frozenset({"CheckNodeLabelPresence", "CheckServiceAffinity"})
_MANDATORY: Final = ("PodToleratesNodeTaints", "CheckNodeUnschedulable")
_DEFAULT_PREDICATES: Final = (
    "NoVolumeZoneConflict",
    "MaxEBSVolumeCount",
    "MaxGCEPDVolumeCount",
    "MaxAzureDiskVolumeCount",
    "MaxCSIVolumeCountPred",
    "MatchInterPodAffinity",
    "NoDiskConflict",
    "GeneralPredicates",
    "PodToleratesNodeTaints",
    "CheckVolumeBinding",
    "CheckNodeUnschedulable",
    "EvenPodsSpread",
)

#: Plugin and its points by priority. Custom priorities are named like their plugin.
_PRIORITIES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "SelectorSpreadPriority": ("SelectorSpread", (_PS, _S)),
    "TaintTolerationPriority": ("TaintToleration", (_PS, _S)),
    "NodeAffinityPriority": ("NodeAffinity", (_PS, _S)),
    "InterPodAffinityPriority": ("InterPodAffinity", (_PS, _S)),
    "ImageLocalityPriority": ("ImageLocality", (_S,)),
    "NodePreferAvoidPodsPriority": ("NodePreferAvoidPods", (_S,)),
    "LeastRequestedPriority": ("NodeResourcesLeastAllocated", (_S,)),
    "MostRequestedPriority": ("NodeResourcesMostAllocated", (_S,)),
    "BalancedResourceAllocation": ("NodeResourcesBalancedAllocation", (_S,)),
    "EvenPodsSpreadPriority": ("PodTopologySpread", (_PS, _S)),
    "RequestedToCapacityRatio": ("RequestedToCapacityRatio", (_S,)),
    "NodeLabel": ("NodeLabel", (_S,)),
    "ServiceAffinity": ("ServiceAffinity", (_S,)),
}
_PRIORITY_ALIASES: Final = {"ServiceSpreadingPriority": "SelectorSpreadPriority"}
_CUSTOM_PRIORITIES: Final = frozenset({"RequestedToCapacityRatio", "NodeLabel", "ServiceAffinity"})
_IGNORED_PRIORITIES: Final = frozenset({"EqualPriority"})
_DEFAULT_PRIORITIES: Final = {
    "SelectorSpreadPriority": 1,
    "InterPodAffinityPriority": 1,
    "LeastRequestedPriority": 1,
    "BalancedResourceAllocation": 1,
    "NodePreferAvoidPodsPriority": 10000,
    "NodeAffinityPriority": 1,
    "TaintTolerationPriority": 1,
    "ImageLocalityPriority": 1,
    "EvenPodsSpreadPriority": 2,
}


# -- names to plugins --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChosenPlugins:
    """Plugins of a Policy by point (a field name of ``Plugins``), and arguments of retired ones.

    ``spreads_by_default`` is set if PodTopologySpread does the work of SelectorSpreadPriority.
    """

    lists: dict[str, list[Plugin]]
    plugin_config: tuple[PluginConfig, ...]
    spreads_by_default: bool


class _Chooser:
    """Collector of the names in a Policy; arguments of custom predicates and priorities accumulate."""

    def __init__(self) -> None:
        self.labels = NodeLabelArgs()
        self.services = ServiceAffinityArgs()
        self.ratio: RequestedToCapacityRatioArgs | None = None
        self._ratio_from = ""
        self.predicates: set[str] = set(_MANDATORY)
        self.weights: dict[str, int] = {}
        #: (name and weight it was first given with, number of times it was given) by custom priority.
        self._first: dict[str, tuple[str, int, int]] = {}

    def predicate(self, item: PredicatePolicy) -> None:
        name, argument = _PREDICATE_ALIASES.get(item.name, item.name), item.argument
        if argument is None:
            if name not in _PREDICATES or name in _CUSTOM_PREDICATES:
                raise _refused(f'predicate type not found for "{item.name}"', _near(item.name, _PREDICATES))
            self.predicates.add(name)
            return
        given = sum(value is not None for value in (argument.service_affinity, argument.labels_presence))
        if given != 1:
            raise _refused(
                f"exactly 1 predicate argument is required, numArgs: {given}, predicate {item.name}",
                "argument is one of serviceAffinity and labelsPresence",
            )
        if argument.service_affinity is not None:
            self.predicates.add("CheckServiceAffinity")
            labels = (*self.services.affinity_labels, *argument.service_affinity.labels)
            self.services = replace(self.services, affinity_labels=labels)
        elif argument.labels_presence is not None:
            self.predicates.add("CheckNodeLabelPresence")
            attribute = "present_labels" if argument.labels_presence.presence else "absent_labels"
            self.labels = _with_more(self.labels, attribute, argument.labels_presence.labels)

    def priority(self, item: PriorityPolicy, index: int) -> None:
        if item.weight <= 0 or item.weight >= _MAX_WEIGHT:
            raise _refused(
                f"Priority {item.name} should have a positive weight applied to it or it has overflown",
                f"priorities[{index}].weight: {item.weight} is not between 1 and {_MAX_PLUGIN_WEIGHT}",
            )
        argument = item.argument
        if argument is None:
            name = _PRIORITY_ALIASES.get(item.name, item.name)
            if name in _IGNORED_PRIORITIES:
                return
            if name not in _PRIORITIES or name in _CUSTOM_PRIORITIES:
                raise _refused(f'priority type not found for "{item.name}"', _near(item.name, _PRIORITIES))
            self.weights[name] = item.weight
            return
        values = (
            argument.service_anti_affinity,
            argument.label_preference,
            argument.requested_to_capacity_ratio_arguments,
        )
        given = sum(value is not None for value in values)
        if given != 1:
            raise _refused(
                f"exactly 1 priority argument is required, numArgs: {given}, priority {item.name}",
                "argument is one of serviceAntiAffinity, labelPreference and requestedToCapacityRatioArguments",
            )
        if argument.service_anti_affinity is not None:
            labels = (*self.services.anti_affinity_labels_preference, argument.service_anti_affinity.label)
            self.services = replace(self.services, anti_affinity_labels_preference=labels)
            self._repeated("ServiceAffinity", "ServiceAntiAffinity", item)
        elif argument.label_preference is not None:
            attribute = "present" if argument.label_preference.presence else "absent"
            self.labels = _with_more(self.labels, f"{attribute}_labels_preference", (argument.label_preference.label,))
            self._repeated("NodeLabel", "LabelPreference", item)
        elif argument.requested_to_capacity_ratio_arguments is not None:
            if self.ratio is not None:
                raise _refused(
                    f'Priority "{item.name}" redeclares custom priority "RequestedToCapacityRatio", '
                    f'from:"{self._ratio_from}"',
                    "leave one of them out",
                )
            ratio = argument.requested_to_capacity_ratio_arguments
            self.ratio = RequestedToCapacityRatioArgs(shape=ratio.shape, resources=ratio.resources)
            self._ratio_from = item.name
            self.weights["RequestedToCapacityRatio"] = item.weight
            path = f"priorities[{index}].argument.requestedToCapacityRatioArguments"
            if errors := retired_args_errors(self.ratio, path):
                raise ConfigError("validate", errors)

    def _repeated(self, plugin: str, words: str, item: PriorityPolicy) -> None:
        """Add a custom priority. It may be given several times with equal weights; the plugin's weight is the sum."""
        name, weight, count = self._first.get(plugin, (item.name, item.weight, 0))
        if weight != item.weight:
            raise _refused(
                f'{words}  priority "{item.name}" has a different weight with "{name}"',
                f"give both the weight {weight} or {item.weight}",
            )
        self._first[plugin] = (name, weight, count + 1)
        self.weights[plugin] = weight * (count + 1)


def policy_plugins(policy: Policy, notes: Notes, *, spread: bool) -> ChosenPlugins:
    """Choose a Policy's plugins. With ``spread`` PodTopologySpread's own constraints replace SelectorSpreadPriority.

    Default predicates and priorities that ``notes`` calls unavailable are left out.

    Raises:
        ConfigError: ``couldn't create scheduler from policy: …``.
    """
    chooser = _Chooser()
    if policy.predicates is None:
        chooser.predicates.update(_DEFAULT_PREDICATES)
    for predicate in policy.predicates or ():
        chooser.predicate(predicate)
    if policy.priorities is None:
        chooser.weights.update(_DEFAULT_PRIORITIES)
    for index, priority in enumerate(policy.priorities or ()):
        chooser.priority(priority, index)
    if errors := [
        *retired_args_errors(chooser.labels, "predicates and priorities"),
        *retired_args_errors(chooser.services, "predicates and priorities"),
    ]:
        raise ConfigError("validate", errors)
    lists: dict[str, list[Plugin]] = {
        "queue_sort": [Plugin(name="PrioritySort")],
        "post_filter": [Plugin(name="DefaultPreemption")] if notes.has("DefaultPreemption") else [],
        "bind": [Plugin(name="DefaultBinder")],
        **{point: [] for point in (_PF, _F, _R, _PB, _PS, _S)},
    }
    by_default = policy.predicates is None
    for name, plugins in _PREDICATES.items():
        if name in chooser.predicates:
            for plugin, points in plugins:
                dropped = notes.keep_limits and plugin in VOLUME_LIMITS  # volume limits that the Policy names stay
                if not by_default or (notes.has(plugin) and not dropped):
                    _enable(lists, plugin, points)
    for name, weight in sorted(chooser.weights.items()):
        plugin, points = _PRIORITIES[name]
        if plugin == "SelectorSpread" and spread:
            plugin = "PodTopologySpread"
        if weight > _MAX_PLUGIN_WEIGHT:
            text = f"Priority {name} should have a positive weight applied to it or it has overflown"
            raise _refused(text, f"the weight {weight} is more than {_MAX_PLUGIN_WEIGHT}")
        _enable(lists, plugin, points, weight)
    entries: list[tuple[str, Part]] = [("NodeLabel", chooser.labels), ("ServiceAffinity", chooser.services)]
    if chooser.ratio is not None:
        entries.append(("RequestedToCapacityRatio", chooser.ratio))
    enabled = {plugin.name for plugins in lists.values() for plugin in plugins}
    config = tuple(PluginConfig(name=name, args=plain_args(args)) for name, args in entries if name in enabled)
    return ChosenPlugins(lists, config, spread and "SelectorSpreadPriority" in chooser.weights)


def _enable(lists: dict[str, list[Plugin]], name: str, points: Iterable[str], weight: int = 0) -> None:
    for point in points:
        if all(plugin.name != name for plugin in lists[point]):
            lists[point].append(Plugin(name=name, weight=weight if point == _S else 0))


def _with_more(args: NodeLabelArgs, attribute: str, labels: tuple[str, ...]) -> NodeLabelArgs:
    return replace(args, **{attribute: (*getattr(args, attribute), *labels)})


def _refused(text: str, detail: str) -> ConfigError:
    return ConfigError("framework", [_WRAPPER + text], details=[detail])


def _near(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"
