"""Reference pages in ``docs/``, made from the tables and docstrings in the source: ``make reference``.

A test compares the pages with the source, and checks that every field has a text.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kubesched.scheduler.config import IN_TREE
from kubesched.scheduler.config.args import ARGS_TYPES, Go
from kubesched.scheduler.config.durations import Duration
from kubesched.scheduler.config.features import FEATURES, UNAVAILABLE
from kubesched.scheduler.config.older import older
from kubesched.scheduler.config.types import API_VERSION, KubeSchedulerConfiguration
from kubesched.scheduler.framework import metrics
from kubesched.scheduler.plugins import in_tree_registry

from .reference_code import contract_page, python_page
from .reference_dashboard import dashboard_page, dashboard_schema
from .reference_metrics import metrics_page
from .reference_reasons import reasons_page
from .reference_texts import FIELDS, GATES, SELECTOR_TYPES, WITHOUT_EFFECT
from .run.flags import FLAG_SET

__all__ = ["configuration_page", "configuration_types", "flags_page", "gates_page", "main", "pages"]

_MADE: Final = "This page is made from the source: `make reference`."
_REGISTERED: Final = frozenset(in_tree_registry())
_SIMPLE: Final = {str: "string", int: "int", float: "float", bool: "bool", bytes: "base64", Duration: "duration"}


def pages() -> dict[str, str]:
    """Return every generated page: file name to text."""
    return {
        "configuration-reference.md": configuration_page(),
        "dashboard-api.md": dashboard_page(_MADE),
        "dashboard-schema.json": dashboard_schema(),
        "feature-gates.md": gates_page(),
        "flags.md": flags_page(),
        "metrics.md": metrics_page(_MADE),
        "plugin-contract.md": contract_page(_MADE),
        "python-reference.md": python_page(_MADE),
        "reasons.md": reasons_page(_MADE),
    }


def main(arguments: Sequence[str]) -> int:
    """Write all pages into a directory. Return the exit code."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m kubesched.cli.reference DIRECTORY", file=sys.stderr)
        return 2
    for name, text in pages().items():
        Path(arguments[0], name).write_text(text, encoding="utf-8")
    return 0


def _table(head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join([*lines, ""])


# -- flags ---------------------------------------------------------------------------------------------


def flags_page() -> str:
    """Return the page of all flags of ``kubesched run``, by group."""
    parts = [
        "# Flags of `kubesched run`",
        "The flags of kube-scheduler 1.36, with its names, types and defaults, and a few that only kubesched has. `kubesched run --help` "
        "shows the same. Underscores in names count as hyphens. A bool takes a value only after `=`.",
        _MADE,
    ]
    retired = {flag.name: flag for flag in older().flags}
    for group in dict.fromkeys(flag.group for flag in FLAG_SET.flags):
        rows = []
        for flag in sorted((flag for flag in FLAG_SET.flags if flag.group == group), key=lambda flag: flag.name):
            name = f"`-{flag.short}`, `--{flag.name}`" if flag.short else f"`--{flag.name}`"
            default = flag.type.write(flag.default)
            about = flag.about
            if group == "Retired" and (removed := retired[flag.name].removed_in):
                about = f"{about}. Gone since {removed}."
            rows.append((name, flag.type.name or "bool", f"`{default}`" if default else "", about))
        parts.append(f"## {group}\n\n{_table(('flag', 'type', 'default', 'meaning'), rows)}".rstrip())
    return "\n\n".join(parts) + "\n"


# -- configuration -------------------------------------------------------------------------------------


def configuration_types() -> list[type[msgspec.Struct]]:
    """Return the types of the configuration in reading order, with the arguments of plugins last."""
    found: dict[type[msgspec.Struct], None] = {}

    def add(type_: type[msgspec.Struct]) -> None:
        if type_.__name__ in SELECTOR_TYPES or type_ in found:
            return
        found[type_] = None
        for hint in typing.get_type_hints(type_).values():
            for part in _structs(hint):
                add(part)

    for root in (KubeSchedulerConfiguration, *ARGS_TYPES.values()):
        add(root)
    return list(found)


def _structs(hint: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if hint is not Duration:
            yield hint
        return
    for part in typing.get_args(hint):
        yield from _structs(part)


def configuration_page() -> str:
    """Return the page of all fields of the configuration file."""
    parts = [
        "# Configuration reference",
        f"Every field of `apiVersion: {API_VERSION}`, `kind: KubeSchedulerConfiguration`. [Configuration](configuration.md) describes how "
        "files of older versions are read. `kubesched config check FILE` checks a file; `kubesched config convert FILE` writes it with "
        "every default.",
        _MADE,
    ]
    roots = {type_: name for name, type_ in ARGS_TYPES.items()}
    for type_ in configuration_types():
        title = f"{roots[type_]}: `{type_.__name__}`" if type_ in roots else f"`{type_.__name__}`"
        parts.append(f"## {title}\n\n{_table(('field', 'type', 'default', 'meaning'), _rows(type_))}".rstrip())
    rows = [(_with_note(row.name), str(row.weight) if row.weight else "", row.gate) for row in IN_TREE.values()]
    parts.append(
        "## Plugins in the tree\n\nThe default plugins in their order, with the weight of their scores and the feature gate they need.\n\n"
        + _table(("plugin", "weight", "gate"), rows).rstrip()
    )
    return "\n\n".join(parts) + "\n"


def _with_note(plugin: str) -> str:
    return plugin if plugin in _REGISTERED else f"{plugin} (not available)"


def _rows(type_: type[msgspec.Struct]) -> Iterator[Sequence[str]]:
    hints = typing.get_type_hints(type_, include_extras=True)
    for field in msgspec.structs.fields(type_):
        yield (
            f"`{field.encode_name}`",
            _type_name(hints[field.name]),
            _default(field.default),
            FIELDS[type_.__name__][field.encode_name],
        )


def _type_name(hint: Any) -> str:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        given = next((part.type for part in parts[1:] if isinstance(part, Go) and "." not in part.type), "")
        return given or _type_name(parts[0])
    if origin is tuple:
        return f"list of {_type_name(parts[0])}"
    if parts:
        return _type_name(next(part for part in parts if part is not type(None)))
    return _SIMPLE.get(hint, getattr(hint, "__name__", "any") if hint is not Any else "any")


def _default(value: Any) -> str:
    if value is None or value is msgspec.NODEFAULT or value == () or value == "":
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Duration):
        return str(value) if value.seconds else ""
    if isinstance(value, msgspec.Struct | tuple | bytes):
        return "see below" if value and not isinstance(value, bytes) else ""
    return f"{value:g}" if isinstance(value, float) else str(value)


# -- feature gates -------------------------------------------------------------------------------------


def gates_page() -> str:
    """Return the page of all feature gates and their effects."""
    with_metrics = {row.gate for row in metrics.DEFINITIONS if row.gate}
    rows = []
    for feature in FEATURES.values():
        effects = ["always on"] if feature.locked else []
        if feature.name in UNAVAILABLE:
            effects.append(f"cannot be turned on, as kubesched lacks {UNAVAILABLE[feature.name]}")
        if feature.name in WITHOUT_EFFECT:
            effects.append(f"no effect: {WITHOUT_EFFECT[feature.name]}")
        effects += [GATES[feature.name]] if feature.name in GATES else []
        if plugins := [row.name for row in IN_TREE.values() if row.gate == feature.name]:
            effects.append(f"default plugins: {', '.join(map(_with_note, plugins))}")
        effects += ["has metrics"] if feature.name in with_metrics else []
        default = ("on" if feature.default else "off") + (", locked" if feature.locked else "")
        needs = ", ".join(feature.needs)
        rows.append((f"`{feature.name}`", feature.stage.value, default, feature.since, needs, "; ".join(effects)))
    head = ("gate", "stage", "default", "since", "needs", "what it switches here")
    return (
        "\n\n".join(
            (
                "# Feature gates",
                "`--feature-gates` knows every gate that kube-scheduler 1.36 reads, with its checks: an unknown gate, a locked gate "
                "that is changed, and a gate that needs another one are errors. `AllAlpha` and `AllBeta` set all gates of a stage, and "
                "`AllPodGroups`, a word of kubesched's own, all gates of [pod groups](pod-groups.md).",
                "The last column says what a gate switches here. A gate that turns on a feature that kubesched lacks is refused, even if "
                "`AllAlpha` turns it on: add `NAME=false` for each gate that the message names. A gate without effect is accepted, and shown by "
                "`kubernetes_feature_enabled`. Tests show each row: the decision with the gate on and off, or the refusal.",
                _MADE,
                _table(head, rows).rstrip(),
            )
        )
        + "\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
