"""Arguments of retired plugins: their types and checks; and the names of the plugins.

A configuration holds the arguments of a retired plugin as plain data, as it does for plugins that are not part of
Kubernetes, so that a file written as v1 reads back unchanged. The plugins convert them to the types here.
Source: rules/configuration §9 and §11.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from kubesched.scheduler.config.args import CPU_AND_MEMORY, Part, ResourceSpec, UtilizationShapePoint
from kubesched.scheduler.config.errors import join_errors
from kubesched.scheduler.config.fielderrors import invalid, required
from kubesched.scheduler.config.shapes import Decoder, WrongTypeError
from kubesched.scheduler.config.validate_args import shape_errors

__all__ = [
    "RETIRED_ARGS",
    "RETIRED_PLUGINS",
    "NodeLabelArgs",
    "NodeResourcesLeastAllocatedArgs",
    "NodeResourcesMostAllocatedArgs",
    "RequestedToCapacityRatioArgs",
    "ServiceAffinityArgs",
    "plain_args",
    "retired_args",
    "retired_args_errors",
]

T = TypeVar("T", bound=Part)


class NodeLabelArgs(Part, frozen=True):
    """Labels that a node must and must not have, and labels that it should and should not have."""

    go_name: ClassVar[str] = "v1beta1.NodeLabelArgs"
    present_labels: tuple[str, ...] = ()
    absent_labels: tuple[str, ...] = ()
    present_labels_preference: tuple[str, ...] = ()
    absent_labels_preference: tuple[str, ...] = ()


class ServiceAffinityArgs(Part, frozen=True):
    """Labels in which the nodes of a service's pods agree, and labels over which its pods are spread."""

    go_name: ClassVar[str] = "v1beta1.ServiceAffinityArgs"
    affinity_labels: tuple[str, ...] = ()
    anti_affinity_labels_preference: tuple[str, ...] = ()


class NodeResourcesLeastAllocatedArgs(Part, frozen=True):
    go_name: ClassVar[str] = "v1beta1.NodeResourcesLeastAllocatedArgs"
    resources: tuple[ResourceSpec, ...] = ()


class NodeResourcesMostAllocatedArgs(Part, frozen=True):
    go_name: ClassVar[str] = "v1beta1.NodeResourcesMostAllocatedArgs"
    resources: tuple[ResourceSpec, ...] = ()


class RequestedToCapacityRatioArgs(Part, frozen=True):
    go_name: ClassVar[str] = "v1beta1.RequestedToCapacityRatioArgs"
    shape: tuple[UtilizationShapePoint, ...] = ()
    resources: tuple[ResourceSpec, ...] = ()


#: Type of a retired plugin's arguments, by plugin. Volume limits, NodePreferAvoidPods and SelectorSpread take none.
RETIRED_ARGS: Final[dict[str, type[Part]]] = {
    "NodeLabel": NodeLabelArgs,
    "NodeResourcesLeastAllocated": NodeResourcesLeastAllocatedArgs,
    "NodeResourcesMostAllocated": NodeResourcesMostAllocatedArgs,
    "RequestedToCapacityRatio": RequestedToCapacityRatioArgs,
    "ServiceAffinity": ServiceAffinityArgs,
}
#: Points that a retired plugin extends, by plugin.
RETIRED_PLUGINS: Final[dict[str, frozenset[str]]] = {
    "AzureDiskLimits": frozenset({"filter"}),
    "CinderLimits": frozenset({"filter"}),
    "EBSLimits": frozenset({"filter"}),
    "GCEPDLimits": frozenset({"filter"}),
    "NodeLabel": frozenset({"filter", "score"}),
    "NodePreferAvoidPods": frozenset({"score"}),
    "NodeResourcesLeastAllocated": frozenset({"score"}),
    "NodeResourcesMostAllocated": frozenset({"score"}),
    "RequestedToCapacityRatio": frozenset({"score"}),
    "SelectorSpread": frozenset({"preScore", "score"}),
    "ServiceAffinity": frozenset({"preFilter", "filter", "score"}),
}


def _conflicts(path: str, present: Iterable[str], absent: Iterable[str], words: str) -> Iterator[str]:
    both = set(present) & set(absent)
    if both:
        yield invalid(path, sorted(both), f"a label is in both {words}; leave it in one of them")


def _resources(path: str, resources: tuple[ResourceSpec, ...]) -> Iterator[str]:
    for index, item in enumerate(resources):
        if not item.name:
            yield required(f"{path}[{index}].name")
        if not 0 <= item.weight <= 100:  # 0 means not given
            text = f"resource weight of {item.name} not in valid range (0, 100]"
            yield invalid(f"{path}[{index}].weight", item.weight, text)


def _label_names(path: str, names: tuple[str, ...]) -> Iterator[str]:
    for index, name in enumerate(names):
        if not name:
            yield required(f"{path}[{index}]", "a label's name")


def retired_args_errors(args: Any, path: str) -> list[str]:
    """Return the errors of a retired plugin's typed arguments; ``path`` goes before the field names."""
    at = f"{path}." if path else ""
    errors: list[str] = []
    match args:
        case NodeLabelArgs():
            names = dict(zip(args.__struct_encode_fields__, args.__struct_fields__, strict=True))
            for name, attribute in names.items():
                errors += _label_names(f"{at}{name}", getattr(args, attribute))
            errors += _conflicts(
                f"{at}presentLabels", args.present_labels, args.absent_labels, "presentLabels and absentLabels"
            )
            errors += _conflicts(
                f"{at}presentLabelsPreference",
                args.present_labels_preference,
                args.absent_labels_preference,
                "presentLabelsPreference and absentLabelsPreference",
            )
        case ServiceAffinityArgs():
            errors += _label_names(f"{at}affinityLabels", args.affinity_labels)
            errors += _label_names(f"{at}antiAffinityLabelsPreference", args.anti_affinity_labels_preference)
        case RequestedToCapacityRatioArgs():
            errors += shape_errors(args.shape, f"{at}shape")
            errors += _resources(f"{at}resources", args.resources)
        case NodeResourcesLeastAllocatedArgs() | NodeResourcesMostAllocatedArgs():
            errors += _resources(f"{at}resources", args.resources)
    return errors


def plain_args(args: Part) -> dict[str, Any]:
    """Convert typed arguments to plain data without empty fields; resources are completed."""
    if hasattr(args, "resources"):
        resources = tuple(msgspec.structs.replace(item, weight=item.weight or 1) for item in args.resources)
        args = msgspec.structs.replace(args, resources=resources or CPU_AND_MEMORY)
    data: dict[str, Any] = msgspec.to_builtins(args)
    return {name: list(value) for name, value in data.items() if value}


def retired_args(data: Any, type_: type[T]) -> T:
    """Convert the plain data that a configuration holds (None: none given) to a retired plugin's typed arguments.

    Raises:
        ValueError: naming the field, its value and what would be right.
    """
    decoder = Decoder("args.")
    try:
        args = decoder.decode({} if data is None else data, type_)
    except WrongTypeError as error:
        raise ValueError(error.detail) from None
    if decoder.unknown:
        raise ValueError("; ".join(decoder.details))
    if errors := retired_args_errors(args, "args"):
        raise ValueError(join_errors(errors))
    return args
