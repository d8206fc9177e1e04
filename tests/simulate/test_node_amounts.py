"""Amounts of hollow nodes, as ``--node-resource`` and ``node_resources`` give them."""

from __future__ import annotations

from typing import Any

import pytest

import kubesched
from kubesched.cluster.files import ManifestError
from kubesched.lab.simulate.inputs.given import node_template_of


@pytest.mark.parametrize(
    ("name", "amount", "message"),
    [
        ("gpu", 8, "nodes have no resource of this name; did you mean nvidia.com/gpu? (there are cpu, memory, "),
        ("memroy", "4Gi", "nodes have no resource of this name; did you mean memory? "),
        ("nodes", "1.5", "nodes have no resource of this name; how many nodes there are is an option of its own "),
        ("requests.nvidia.com/gpu", 1, "nodes have no resource of this name; did you mean nvidia.com/gpu? "),
        ("a b/c", 1, "nodes have no resource of this name (there are "),
        ("example.com/", 1, "nodes have no resource of this name (there are "),
        (7, 1, "nodes have no resource of this name (there are "),
        ("nvidia.com/gpu", 0.5, "must be a whole number"),
        ("pods", "1500m", "must be a whole number"),
        ("cpu", "-1", "must not be negative"),
        ("cpu", "4 cores", "'4 cores' is not a quantity"),
        ("cpu", None, "'None' is not a quantity"),
    ],
)
def test_what_no_node_has_is_refused(name: Any, amount: Any, message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        node_template_of(None, {name: amount})
    assert str(caught.value).startswith(f"node resource {name}={amount}: {message}")


def test_all_bad_amounts_are_named() -> None:
    with pytest.raises(ManifestError) as caught:
        node_template_of(None, {"gpu": 1, "cpu": 4, "pods": "x"})
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "node resource gpu=1",
        "node resource pods=x",
    ]


def test_what_nodes_have_is_accepted() -> None:
    amounts: dict[str, str | int] = {
        "cpu": "0.5",
        "memory": "1.5Gi",
        "nvidia.com/gpu": 8,
        "hugepages-2Mi": "4Mi",
        "example.com/a.b_c": "1e3",
    }
    result = kubesched.simulate(nodes=1, node_resources=amounts)
    found = {item.name for item in result.resources}
    assert {"cpu", "memory", "pods", "nvidia.com/gpu"} <= found


@pytest.mark.parametrize("template", [{"status": 5}, {"metadata": 5}, {"spec": {"taints": {}}}])
def test_a_template_of_the_wrong_shape_is_refused(template: dict[str, Any]) -> None:
    with pytest.raises(ManifestError, match=r"^node_template: "):
        node_template_of(template)


def test_the_cluster_refuses_parts_of_devices_that_a_manifest_gives_a_node() -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"example.com/gpu": "0.5"}},
    }
    with pytest.raises(ManifestError, match=r"allocatable\[example.com/gpu\]: Invalid value: .* must be an integer"):
        kubesched.simulate(node)
