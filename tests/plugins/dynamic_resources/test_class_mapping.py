"""Device class that serves an extended resource."""

from __future__ import annotations

from dra_kit import device_class
from hypothesis import given
from hypothesis import strategies as st

from kubesched.scheduler.plugins.dynamic_resources.class_mapping import ClassMapping

RESOURCE = "example.com/gpu"


def mapping(*classes: object) -> ClassMapping:
    found = ClassMapping()
    for each in classes:
        found.on_add(each, True)  # type: ignore[arg-type]
    return found


def test_a_class_serves_its_name_and_what_it_names() -> None:
    found = mapping(device_class("gpu", RESOURCE))
    assert found.class_of(RESOURCE) == "gpu"
    assert found.class_of("deviceclass.resource.kubernetes.io/gpu") == "gpu"
    assert found.class_of("deviceclass.resource.kubernetes.io/nic") is None
    assert found.class_of("example.com/nic") is None


def test_the_newest_class_serves_then_the_lesser_name() -> None:
    old, new = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
    found = mapping(
        device_class("a", RESOURCE, old), device_class("c", RESOURCE, new), device_class("b", RESOURCE, new)
    )
    assert found.class_of(RESOURCE) == "b"
    found.on_delete(device_class("b", RESOURCE, new))
    assert found.class_of(RESOURCE) == "c"
    assert found.class_of("deviceclass.resource.kubernetes.io/a") == "a"


def test_a_class_that_changes_its_name_serves_the_new_one_only() -> None:
    before, after = device_class("gpu", RESOURCE), device_class("gpu", "example.com/other")
    changes: list[None] = []
    found = ClassMapping(lambda: changes.append(None))
    found.on_add(before, is_initial=False)
    before_update = len(changes)
    found.on_update(before, after)
    assert found.class_of(RESOURCE) is None
    assert found.class_of("example.com/other") == "gpu"
    assert len(changes) > before_update
    assert found.find("gpu") is after


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from([None, "x.io/1", "x.io/2", "delete"]), st.sampled_from([None, 1, 2])
        ),
        max_size=12,
    )
)
def test_the_order_of_events_does_not_matter(steps: list[tuple[str, str | None, int | None]]) -> None:
    found = ClassMapping()
    state: dict[str, tuple[str | None, int | None]] = {}
    for name, resource, day in steps:
        if resource == "delete":
            if name in state:
                found.on_delete(device_class(name))
                del state[name]
            continue
        found.on_add(device_class(name, resource, None if day is None else f"2026-01-0{day}T00:00:00Z"), False)
        state[name] = resource, day
    for resource in ("x.io/1", "x.io/2"):
        having = [(-(day or 0), name) for name, (named, day) in state.items() if named == resource]
        assert found.class_of(resource) == (min(having)[1] if having else None)
