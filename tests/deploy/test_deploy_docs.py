"""docs/operate.md names files, pages, metrics and alerts that exist."""

from __future__ import annotations

import re

from rbac_kit import DEPLOY, KUSTOMIZE, ROOT, documents

from kubesched.scheduler.framework import metrics
from kubesched.scheduler.server import process_metrics

PAGE = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")


def test_its_links_and_files_exist() -> None:
    links = re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", PAGE)
    files = re.findall(r"\bdeploy/[\w./-]*\w", PAGE)
    assert len(links) > 5
    assert len(files) > 5
    for link in links:
        assert (ROOT / "docs" / link).is_file(), link
    for file in files:
        assert (ROOT / file).exists(), file


def test_its_metrics_exist() -> None:
    known = {row.full_name for row in (*metrics.DEFINITIONS, *process_metrics.DEFINITIONS)}
    named = set(re.findall(r"`((?:scheduler|rest_client|leader_election)_\w+)`", PAGE))
    assert named
    assert named <= known


def test_every_part_of_deploy_is_described() -> None:
    parts = [
        "Containerfile",
        "Containerfile.plugins",
        "kustomize/components",
        "kustomize/second-scheduler",
        "kustomize/replacement",
        "helm/kubesched",
        "static-pod",
        "monitoring",
    ]
    for part in parts:
        assert (DEPLOY / part).exists()
        assert f"`deploy/{part}" in PAGE


def test_rolling_back_stops_the_pods_before_it_deletes_what_they_release_the_lease_with() -> None:
    deployment = next(
        item for item in documents(KUSTOMIZE / "base" / "deployment.yaml") if item["kind"] == "Deployment"
    )
    name, labels = deployment["metadata"]["name"], deployment["spec"]["template"]["metadata"]["labels"]
    [lease] = [item["leaderElection"]["resourceName"] for item in documents(KUSTOMIZE / "replacement" / "config.yaml")]
    steps = [
        f"scale deployment/{name} --replicas=0",
        *(f"wait --for=delete pod -l {label}={value}" for label, value in labels.items()),
        f"get lease {lease}",
        "delete -k deploy/kustomize/replacement",
    ]
    part = PAGE[PAGE.index("\n## Roll back") : PAGE.index("\n## Watch")]
    places = [part.index(step) for step in steps]
    assert places == sorted(places)


def test_both_schedulers_on_a_node_want_one_port() -> None:
    [pod] = documents(DEPLOY / "static-pod" / "kubesched.yaml")
    probe = pod["spec"]["containers"][0]["livenessProbe"]["httpGet"]
    assert pod["spec"]["hostNetwork"]
    assert PAGE.count(f"ss -ltnH 'sport = :{probe['port']}'") == 2
