"""The bytes of a long list are made in steps, in every form."""

from __future__ import annotations

import json
from random import Random

import pytest
from aiohttp.test_utils import make_mocked_request

from kubesched.api.kinds import kind_by_plural
from kubesched.cluster.http.answers import Accepted
from kubesched.cluster.http.calls import Call, Target
from kubesched.cluster.http.catalog import Catalog
from kubesched.cluster.http.queries import Query
from kubesched.cluster.http.reading import shape_list
from kubesched.cluster.http.tables import BATCH
from kubesched.cluster.store import Store


class StillClock:
    def now(self) -> float:
        return 0.0


@pytest.mark.parametrize("transform", ["", "PartialObjectMetadataList", "Table"])
def test_a_long_list_is_shaped_in_steps(transform: str) -> None:
    store = Store(StillClock(), random=Random(1))
    kind = kind_by_plural("", "configmaps")
    assert kind is not None
    for number in range(3 * BATCH):
        store.create(kind, "default", {"metadata": {"name": f"c{number:05}"}})
    catalog = Catalog(store)
    catalog.refresh()
    resource = catalog.find("", "v1", "configmaps")
    assert resource is not None
    form = Accepted(transform=transform, version="v1")
    call = Call(make_mocked_request("GET", "/"), Query(), form, Target("", "v1", plural="configmaps"), resource)
    steps, count = shape_list(store, call, store.list(kind)), 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            answer = json.loads(done.value)
            break
        count += 1
    assert count >= 2
    objects = [row["object"] for row in answer["rows"]] if transform == "Table" else answer["items"]
    assert [one["metadata"]["name"] for one in objects] == [f"c{number:05}" for number in range(3 * BATCH)]
