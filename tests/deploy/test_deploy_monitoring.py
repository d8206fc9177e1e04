"""Dashboard and alerts ask for metrics and labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
import yaml
from rbac_kit import DEPLOY

from kubesched.scheduler.framework import metrics
from kubesched.scheduler.server import process_metrics, resources

TABLES = (*metrics.DEFINITIONS, *process_metrics.DEFINITIONS, *process_metrics.SLI_DEFINITIONS, *resources.DEFINITIONS)
KNOWN = {row.full_name: row for row in TABLES}
#: Written by Prometheus and by its client library.
FOREIGN = {"up": "gauge", "process_cpu_seconds_total": "counter", "process_resident_memory_bytes": "gauge"}
TARGET_LABELS = {"job", "instance"}
_SERIES = re.compile(r"(rate\()?([a-z][a-z0-9_]*)\{([^}]*)\}(\[)?")
_GROUPED = re.compile(r"\bby \(([^)]*)\)")
_WITHIN = re.compile(r'"(?:[^"\\]|\\.)*"')


def _alerts() -> Iterator[tuple[str, str]]:
    content = yaml.safe_load((DEPLOY / "monitoring" / "prometheus-rules.yaml").read_text(encoding="utf-8"))
    for group in content["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"]
            assert rule["labels"]["severity"] in ("critical", "warning", "info")
            yield rule["alert"], rule["expr"]


def _panels() -> Iterator[tuple[str, str]]:
    board = json.loads((DEPLOY / "monitoring" / "grafana-dashboard.json").read_text(encoding="utf-8"))
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


EXPRESSIONS = [*_alerts(), *_panels()]


def _definition(name: str) -> tuple[str, set[str]]:
    """Type and labels of a series."""
    if name in FOREIGN:
        return FOREIGN[name], set()
    if name in KNOWN:
        return KNOWN[name].kind, set(KNOWN[name].labels)
    base, _, part = name.rpartition("_")
    assert part in ("bucket", "sum", "count"), name
    assert KNOWN[base].kind == "histogram", name
    return "counter", {*KNOWN[base].labels, "le"}


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS, ids=[title for title, _ in EXPRESSIONS])
def test_an_expression_uses_metrics_and_labels_that_exist(title: str, expression: str) -> None:
    found = _SERIES.findall(expression)
    assert found, title
    labels = set(TARGET_LABELS)
    for rated, name, selectors, ranged in found:
        kind, own = _definition(name)
        named = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", _WITHIN.sub('""', selectors)))
        assert named <= own | TARGET_LABELS, name
        assert bool(rated) is bool(ranged) is (kind == "counter"), f"{name} is a {kind}"
        labels |= own
    for group in _GROUPED.findall(expression):
        assert {label.strip() for label in group.split(",")} <= labels
    assert expression.count("(") == expression.count(")")


def test_no_series_is_named_without_a_selector() -> None:
    names = [*KNOWN, *FOREIGN]
    for title, expression in EXPRESSIONS:
        bare = _WITHIN.sub('""', expression)
        for name in re.findall(r"\b[a-z]+_[a-z_]+\b(?!\s*[({=!~])", re.sub(r"\{[^}]*\}", "{}", bare)):
            assert name not in names, f"{title}: {name}"
