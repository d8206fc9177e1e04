"""Strategic merge, merge and JSON patches on plain data."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_world import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.api.wire import ApiError
from kubesched.cluster.schema import apply_json_patch, apply_merge_patch, apply_strategic_patch

C1, C2 = {"name": "a", "image": "1"}, {"name": "b", "image": "2"}

STRATEGIC: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("null deletes", {"a": 1, "b": 2}, {"a": None}, {"b": 2}),
    (
        "containers merge by name",
        {"spec": {"containers": [C1, C2]}},
        {"spec": {"containers": [{"name": "b", "image": "3"}, {"name": "c"}]}},
        {"spec": {"containers": [C1, {"name": "b", "image": "3"}, {"name": "c"}]}},
    ),
    (
        "an item is deleted by its key",
        {"spec": {"containers": [C1, C2]}},
        {"spec": {"containers": [{"$patch": "delete", "name": "a"}]}},
        {"spec": {"containers": [C2]}},
    ),
    (
        "a list is replaced",
        {"spec": {"containers": [C1, C2]}},
        {"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}},
        {"spec": {"containers": [{"name": "z"}]}},
    ),
    (
        "an object is replaced",
        {"spec": {"nodeSelector": {"a": "b"}}},
        {"spec": {"nodeSelector": {"$patch": "replace", "c": "d"}}},
        {"spec": {"nodeSelector": {"c": "d"}}},
    ),
    ("an object is deleted", {"spec": {"x": {"a": 1}}}, {"spec": {"x": {"$patch": "delete"}}}, {"spec": {}}),
    (
        "tolerations are atomic",
        {"spec": {"tolerations": [{"key": "a"}]}},
        {"spec": {"tolerations": [{"key": "b"}]}},
        {"spec": {"tolerations": [{"key": "b"}]}},
    ),
    (
        "taints are replaced as a whole",
        {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "c", "effect": "NoSchedule"}]}},
        {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}, {"key": "b"}]}},
        {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}, {"key": "b"}]}},
    ),
    (
        "env and ports merge inside containers",
        {
            "spec": {
                "containers": [{"name": "a", "env": [{"name": "X", "value": "1"}], "ports": [{"containerPort": 1}]}]
            }
        },
        {"spec": {"containers": [{"name": "a", "env": [{"name": "Y"}], "ports": [{"containerPort": 1, "name": "p"}]}]}},
        {
            "spec": {
                "containers": [
                    {
                        "name": "a",
                        "env": [{"name": "Y"}, {"name": "X", "value": "1"}],
                        "ports": [{"containerPort": 1, "name": "p"}],
                    }
                ]
            }
        },
    ),
    (
        "command lists are replaced",
        {"spec": {"containers": [{"name": "a", "args": ["x"]}]}},
        {"spec": {"containers": [{"name": "a", "args": ["y"]}]}},
        {"spec": {"containers": [{"name": "a", "args": ["y"]}]}},
    ),
    (
        "finalizers are a set",
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"finalizers": ["b", "c"]}},
        {"metadata": {"finalizers": ["a", "b", "c"]}},
    ),
    (
        "scalars are deleted from a set",
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
        {"metadata": {"finalizers": ["b"]}},
    ),
    (
        "order is set for what is named, and others stay behind what they followed",
        {"status": {"conditions": [{"type": "A"}, {"type": "X"}, {"type": "B"}]}},
        {
            "status": {
                "$setElementOrder/conditions": [{"type": "B"}, {"type": "A"}],
                "conditions": [{"type": "B", "s": 1}],
            }
        },
        {"status": {"conditions": [{"type": "X"}, {"type": "B", "s": 1}, {"type": "A"}]}},
    ),
    (
        "order alone moves items",
        {"metadata": {"ownerReferences": [{"uid": "1"}, {"uid": "2"}, {"uid": "3"}]}},
        {"metadata": {"$setElementOrder/ownerReferences": [{"uid": "3"}, {"uid": "2"}, {"uid": "1"}]}},
        {"metadata": {"ownerReferences": [{"uid": "3"}, {"uid": "2"}, {"uid": "1"}]}},
    ),
    (
        "new items go ahead of those that the patch does not name",
        {"spec": {"tolerations": [{"key": "t"}], "volumes": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}},
        {"spec": {"volumes": [{"name": "new"}, {"name": "b"}, {"name": "last"}]}},
        {
            "spec": {
                "tolerations": [{"key": "t"}],
                "volumes": [{"name": "new"}, {"name": "a"}, {"name": "b"}, {"name": "last"}, {"name": "c"}],
            }
        },
    ),
    (
        "new scalars of a set go first, too",
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"finalizers": ["c", "b"]}},
        {"metadata": {"finalizers": ["c", "a", "b"]}},
    ),
    (
        "retained keys",
        {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}},
        {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
        {"spec": {"strategy": {"type": "Recreate"}}},
    ),
    (
        "a new volume drops nothing of the others",
        {"spec": {"volumes": [{"name": "a", "emptyDir": {}}]}},
        {"spec": {"volumes": [{"name": "b", "emptyDir": {"sizeLimit": None}}]}},
        {"spec": {"volumes": [{"name": "b", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]}},
    ),
    (
        "owner references merge by uid",
        {"metadata": {"ownerReferences": [{"uid": "1"}, {"uid": "2"}]}},
        {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "1"}]}},
        {"metadata": {"ownerReferences": [{"uid": "2"}]}},
    ),
]


@pytest.mark.parametrize(("name", "target", "patch", "want"), STRATEGIC, ids=[row[0] for row in STRATEGIC])
def test_strategic_merge(name: str, target: dict[str, Any], patch: dict[str, Any], want: dict[str, Any]) -> None:
    import copy

    kept = copy.deepcopy(patch)
    assert apply_strategic_patch(copy.deepcopy(target), patch) == want
    assert patch == kept


BAD_STRATEGIC: list[tuple[Any, str]] = [
    ([], "is an object"),
    ({"spec": {"$patch": "burn"}}, "unrecognized $patch directive"),
    ({"spec": {"containers": [{"image": "x"}]}}, "does not contain declared merge key: name"),
    ({"spec": {"containers": ["x"]}}, "items must be objects"),
    ({"spec": {"$retainKeys": "a"}}, "must be a list"),
    ({"spec": {"$wish": 1}}, "unknown directive"),
]


@pytest.mark.parametrize(("patch", "text"), BAD_STRATEGIC)
def test_a_bad_strategic_patch_is_a_bad_request(patch: Any, text: str) -> None:
    with refused(400, "BadRequest", text):
        apply_strategic_patch({"spec": {"containers": [C1]}}, patch)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab/~", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.text("abc", max_size=2), JSON, max_size=3),
    st.dictionaries(st.text("abc", max_size=2), JSON, max_size=3),
)
def test_merge_patch_leaves_no_null_members_and_is_idempotent(target: dict[str, Any], patch: dict[str, Any]) -> None:
    import copy

    once = apply_merge_patch(copy.deepcopy(target), copy.deepcopy(patch))
    for key, value in patch.items():
        assert (key not in once) if value is None else (key in once)
    assert all(once[key] == target[key] for key in target if key not in patch)
    assert apply_merge_patch(copy.deepcopy(once), copy.deepcopy(patch)) == once


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text("ab/~", min_size=1, max_size=2), JSON, min_size=1, max_size=3), JSON)
def test_adding_and_removing_a_member_by_json_patch_restores_the_document(document: dict[str, Any], value: Any) -> None:
    import copy

    path = "/new~0~1name"
    added = apply_json_patch(copy.deepcopy(document), [{"op": "add", "path": path, "value": value}])
    assert added == {**document, "new~/name": value}
    checked = [{"op": "test", "path": path, "value": value}, {"op": "remove", "path": path}]
    assert apply_json_patch(added, checked) == document


BAD_JSON: list[tuple[Any, int, str]] = [
    ({}, 400, "a list of operations"),
    ([{"op": "add"}], 400, "needs a string path"),
    ([{"op": "add", "path": "/a"}], 422, "operation 0 (add /a): "),
    ([{"op": "wish", "path": "/a"}], 422, "unknown op"),
    ([{"op": "copy", "from": 5, "path": "/a"}], 422, "from must be a string path"),
    ([{"op": "copy", "from": "/text/0", "path": "/a"}], 422, "'0' is below a value that is neither object nor list"),
    ([{"op": "remove", "path": "/~2"}], 422, "operation 0 (remove /~2): "),
    ([{"op": "add", "path": "a", "value": 1}], 422, "operation 0 (add a): "),
    ([{"op": "replace", "path": "/list/7", "value": 1}], 422, "operation 0 (replace /list/7): "),
    ([{"op": "add", "path": "/list/01", "value": 1}], 422, r"'01' is not a"),
    ([{"op": "move", "from": "/list", "path": "/list/0"}], 422, "operation 0 (move /list/0): "),
    ([{"op": "replace", "path": "", "value": 5}], 422, "the patch leaves no object"),
    ([{"op": "replace", "path": "", "value": [{}]}], 422, "the patch leaves no object"),
]


@pytest.mark.parametrize(("operations", "code", "text"), BAD_JSON)
def test_a_bad_json_patch_is_refused(operations: Any, code: int, text: str) -> None:
    with refused(code, match=text):
        apply_json_patch({"list": [1, 2], "text": "abc"}, operations)


NAMES = st.sampled_from(["a", "b", "c", 1, True, 1.0, ["x"]])


def _item(name: Any, value: int, directive: str) -> dict[str, Any]:
    return {"name": name, "value": value, **({"$patch": directive} if directive else {})}


ITEMS = st.builds(_item, NAMES, st.integers(0, 9), st.just(""))
CHANGES = st.builds(_item, NAMES, st.integers(0, 9), st.sampled_from(["", "", "delete", "merge"]))


@given(st.lists(ITEMS, max_size=5), st.lists(CHANGES, max_size=6))
def test_items_merge_by_key_one_after_the_other(items: list[dict[str, Any]], changes: list[dict[str, Any]]) -> None:
    """Against the plain rule: the first item with the key is changed, else one is added; all with it are deleted.

    Items that the patch does not name keep their order among each other.
    """
    wanted = [dict(item) for item in items]
    for change in changes:
        same = [item for item in wanted if _is_name(item, change["name"])]
        plain = {"name": change["name"], "value": change["value"]}
        if change.get("$patch") == "delete":
            wanted = [item for item in wanted if not _is_name(item, change["name"])]
        elif same:
            same[0].update(plain)
        else:
            wanted.append(plain)
    patch = {"spec": {"containers": changes}}
    found = apply_strategic_patch({"spec": {"containers": [dict(item) for item in items]}}, patch)["spec"]["containers"]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    assert _without(found, changes) == _without(wanted, changes)


def _without(items: list[dict[str, Any]], named: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in items if not any(_is_name(item, change["name"]) for change in named)]


def _is_name(item: dict[str, Any], name: Any) -> bool:
    return item["name"] == name and isinstance(item["name"], bool) is isinstance(name, bool)


EXACT: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (
        "a set of scalars takes true although it has 1",
        {"metadata": {"finalizers": [1, "a"]}},
        {"metadata": {"finalizers": [True, 1]}},
        {"metadata": {"finalizers": [True, 1, "a"]}},
    ),
    (
        "true is deleted from a set, and 1 stays",
        {"metadata": {"finalizers": [1, True, "1"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": [True]}},
        {"metadata": {"finalizers": [1, "1"]}},
    ),
    (
        "1.0 is deleted from a set that has 1",
        {"metadata": {"finalizers": [1, True]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": [1.0]}},
        {"metadata": {"finalizers": [True]}},
    ),
    (
        "an order that names true does not move 1",
        {"metadata": {"finalizers": [1, "a", True]}},
        {"metadata": {"$setElementOrder/finalizers": [True, "a"]}},
        {"metadata": {"finalizers": [1, True, "a"]}},
    ),
]


@pytest.mark.parametrize(("before", "patch", "after"), [case[1:] for case in EXACT], ids=[case[0] for case in EXACT])
def test_booleans_and_numbers_are_distinguished_in_sets(
    before: dict[str, Any], patch: dict[str, Any], after: dict[str, Any]
) -> None:
    found = apply_strategic_patch(before, patch)
    assert [(type(item), item) for item in found["metadata"]["finalizers"]] == [
        (type(item), item) for item in after["metadata"]["finalizers"]
    ]


@pytest.mark.parametrize(
    ("found", "expected", "passes"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, True, False),
        (False, 0, False),
        ({"x": [0]}, {"x": [False]}, False),
        ({"x": 1, "y": 2}, {"y": 2, "x": 1}, True),
        (None, None, True),
        (None, False, False),
    ],
)
def test_a_json_patch_test_compares_exactly(found: Any, expected: Any, passes: bool) -> None:
    operations = [{"op": "test", "path": "/a", "value": expected}]
    if passes:
        assert apply_json_patch({"a": found}, operations) == {"a": found}
    else:
        with refused(422, match="testing value failed"):
            apply_json_patch({"a": found}, operations)


def test_what_a_refusal_shows_of_an_object_is_short() -> None:
    with pytest.raises(ApiError) as caught:
        apply_json_patch({"data": "x" * 10_000}, [{"op": "add", "path": "/a/b", "value": 1}])
    assert len(caught.value.message) < 500


def test_copies_of_copies_end_before_they_fill_the_memory() -> None:
    doubling = [{"op": "copy", "from": "/data", "path": f"/data/x{number}"} for number in range(60)]
    with pytest.raises(ApiError, match=r"all copies together exceed 3145728 bytes") as refused:
        apply_json_patch({"data": {"a": "b" * 1000}}, doubling)
    assert refused.value.code == 413


def test_a_json_patch_may_nest_as_deep_as_a_request_and_no_deeper() -> None:
    def nested(levels: int) -> list[dict[str, Any]]:
        return [{"op": "add", "path": "/d" * (level + 1), "value": {}} for level in range(levels)]

    assert apply_json_patch({}, nested(199))
    with pytest.raises(ApiError, match="nested more than 200 levels deep") as refused:
        apply_json_patch({}, nested(200))
    assert refused.value.code == 422
