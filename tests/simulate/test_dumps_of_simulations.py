"""Dumps of simulated clusters: new objects beside them have UIDs of their own."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import kubesched
from kubesched.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_pods_that_are_added_to_a_dump_of_a_simulation_are_placed(tmp_path: Path) -> None:
    saved = tmp_path / "saved.jsonl.gz"
    assert main(["simulate", "-f", str(EXAMPLES / "web-shop"), "--nodes", "6", "--save-cluster", str(saved), "-q"]) == 0
    lines = [json.loads(line) for line in gzip.decompress(saved.read_bytes()).splitlines()]
    objects = [one for one in (line.get("object", line) for line in lines) if one.get("kind") in ("Node", "Pod")]
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    result = kubesched.simulate([str(dump), str(EXAMPLES / "node-failure")])
    assert (result.totals.placed, result.totals.pending) == (33, 0)
    assert result.errors == []
