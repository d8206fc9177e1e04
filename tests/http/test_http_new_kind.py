"""The recipe "Add a kind" of docs/embedded-cluster.md, followed to the letter in a copy of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
#: File, table or "at the end", and the rows to add.
Recipe = list[tuple[str, str, str]]

#: Runs in the copy: what a client sees of a frog's life, as JSON.
LIFE = r"""
import asyncio, json, sys
from http_world import APPLY, MERGE, STRATEGIC, TABLE, a_store, served
from protobuf_kit import envelope, pb

FROGS = "/apis/example.k8s.io/v1beta1/frogs"
frog = {"apiVersion": "example.k8s.io/v1beta1", "kind": "Frog", "metadata": {"name": "f", "labels": {"a": "b"}},
        "spec": {"colour": "green", "ponds": [{"name": "x", "depth": 1}]}}

async def main():
    seen = {}
    async with served(a_store()) as api:
        async with api.watch(FROGS, sendInitialEvents="true", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true") as events:
            await events.next()
            seen["create"] = (await api.post(FROGS, frog)).data
            seen["watch"] = await events.take(1)
        seen["rules"] = (await api.post(FROGS, {**frog, "metadata": {"name": "r"}, "spec": {"legs": -1}}, dryRun="All")).data.get("message")
        seen["strict"] = (await api.post(FROGS, {**frog, "metadata": {"name": "g"}, "spec": {"colour": "red", "color": 1}}, fieldValidation="Strict", dryRun="All")).status
        seen["patch"] = (await api.patch(f"{FROGS}/f", {"spec": {"ponds": [{"name": "y", "depth": 2}]}, "status": {"mood": "good"}}, type=STRATEGIC)).data
        seen["status"] = (await api.patch(f"{FROGS}/f/status", {"status": {"mood": "good"}}, type=MERGE)).status
        seen["apply"] = (await api.apply(f"{FROGS}/f", {**frog, "spec": {"colour": "blue"}}, force="true")).data
        for colour in ("blue", "pink"):
            answer = await api.get(FROGS, fieldSelector=f"spec.colour={colour}")
            seen[colour] = [item["metadata"]["name"] for item in answer.data["items"]] if answer.status == 200 else answer.status
        table = (await api.get(FROGS, accept=TABLE)).data
        seen["columns"] = [column["name"] for column in table["columnDefinitions"]]
        seen["cells"] = table["rows"][0]["cells"]
        document = (await api.get("/openapi/v3/apis/example.k8s.io/v1beta1")).data
        schemas = [schema for schema in document["components"]["schemas"].values() if "x-kubernetes-group-version-kind" in schema]
        seen["schema"] = schemas[0]
        seen["resources"] = [item["name"] for item in (await api.get("/apis/example.k8s.io/v1beta1")).data["resources"]]
        seen["delete"] = (await api.delete(f"{FROGS}/f")).status
        raw = envelope("example.k8s.io/v1beta1", "Frog", pb(1, pb(1, "p")) + pb(2, pb(1, "red") + pb(3, pb(1, "z") + pb(2, 3))))
        answer = await api("POST", FROGS, raw=raw, type="application/vnd.kubernetes.protobuf")
        seen["protobuf"] = [answer.status, answer.data.get("spec")]
    print(json.dumps(seen))

asyncio.run(main())
"""


def _recipe() -> Recipe:
    page = (ROOT / "docs" / "embedded-cluster.md").read_text()
    section = page[page.index("## Add a kind") : page.index("## The client's side")]
    found = re.findall(
        r"in\s+`(src/[^`]+)`, (?:in `(\w+)`|(at the end)):\n\n```text\n(.*?)```", section, re.IGNORECASE | re.DOTALL
    )
    return [(file, table or end, rows) for file, table, end, rows in found]


def _follow(copy: Path, recipe: Recipe) -> None:
    for file, where, rows in recipe:
        path = copy / file.removeprefix("src/")
        lines = path.read_text().splitlines(keepends=True)
        at = len(lines)
        if where != "at the end":
            at = next(index for index, line in enumerate(lines) if line.startswith(f"{where}:")) + 1
            while lines[at].strip() == "{":
                at += 1
        path.write_text("".join((*lines[:at], rows, *lines[at:])))


def _live(tmp_path: Path, recipe: Recipe) -> Any:
    copy = tmp_path / "package"
    shutil.copytree(ROOT / "src" / "kubesched", copy / "kubesched", ignore=shutil.ignore_patterns("__pycache__"))
    _follow(copy, recipe)
    path = os.pathsep.join((str(copy), str(Path(__file__).parent)))
    done = subprocess.run(
        [sys.executable, "-c", LIFE],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_page_has_all_its_rows() -> None:
    recipe = _recipe()
    assert len(recipe) == 8
    assert [file.rpartition("/")[2] for file, _, _ in recipe][:3] == ["kinds.py", "schemas.txt", "descriptions.txt"]


def test_one_row_is_enough(tmp_path: Path) -> None:
    seen = _live(tmp_path, _recipe()[:1])
    assert seen["create"]["spec"] == {"colour": "green", "ponds": [{"name": "x", "depth": 1}]}
    assert seen["watch"] == [["ADDED", "f"]]
    assert seen["strict"] == 201, "free form"
    assert seen["patch"]["status"] == {"mood": "good"}
    assert seen["apply"]["spec"]["colour"] == "blue"
    assert seen["blue"] == 400
    assert seen["columns"] == ["Name", "Age"]
    assert {"apiVersion", "kind", "metadata"} <= set(seen["schema"]["properties"])
    assert seen["schema"]["x-kubernetes-group-version-kind"] == [
        {"group": "example.k8s.io", "version": "v1beta1", "kind": "Frog"}
    ]
    assert seen["resources"] == ["frogs"]
    assert seen["delete"] == 200
    assert seen["protobuf"][0] == 415


def test_every_further_row_does_what_the_page_says(tmp_path: Path) -> None:
    seen = _live(tmp_path, _recipe())
    assert seen["create"]["spec"]["legs"] == 4
    assert seen["create"]["metadata"]["generation"] == 1
    assert seen["rules"].endswith(
        "[spec.colour: Required value, spec.legs: Invalid value: -1: must be greater than or equal to 0]"
    )
    assert seen["strict"] == 400, "colour is spelt with a u"
    assert seen["patch"]["spec"]["ponds"] == [{"name": "y", "depth": 2}, {"name": "x", "depth": 1}]
    assert seen["patch"]["metadata"]["generation"] == 2
    assert seen["patch"]["status"] == {}
    assert seen["status"] == 200
    assert (seen["blue"], seen["pink"]) == (["f"], [])
    assert seen["columns"] == ["Name", "Colour", "Age"]
    assert seen["cells"][:2] == ["f", "blue"]
    assert seen["schema"]["description"] == "An animal that serves as an example."
    assert seen["resources"] == ["frogs", "frogs/status"]
    assert seen["protobuf"] == [201, {"colour": "red", "legs": 4, "ponds": [{"name": "z", "depth": 3}]}]


@pytest.mark.parametrize("kind", ["Frog", "Pond"])
def test_protobuf_rows_name_fields_that_the_schema_has(kind: str) -> None:
    rows = {file.rpartition("/")[2]: text for file, _, text in _recipe()}
    fields = {
        name: {
            part.partition("=")[0]
            for line in rows[name].splitlines()
            if line.startswith(f"{kind} ")
            for part in line.split()[1:]
        }
        for name in ("schemas.txt", "protobuf_fields.txt")
    }
    assert fields["protobuf_fields.txt"] == fields["schemas.txt"] - {"apiVersion", "kind"}
