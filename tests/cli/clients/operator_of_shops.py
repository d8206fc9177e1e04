"""An operator written with kopf, run by kopf's own command."""

from __future__ import annotations

import sys
from typing import Any

import kopf


@kopf.on.create("example.org", "v1", "shops")
async def made(spec: Any, patch: Any, **_: Any) -> dict[str, bool]:
    patch.status["greeting"] = f"hello {spec['word']}"
    return {"ok": True}


@kopf.on.update("example.org", "v1", "shops", field="spec.word")
def changed(old: Any, new: Any, patch: Any, **_: Any) -> None:
    patch.status["greeting"] = f"{old} became {new}"


@kopf.on.delete("example.org", "v1", "shops")
def gone(name: str, **_: Any) -> None:
    sys.stdout.write(f"deleted {name}\n")


@kopf.on.event("pods", labels={"app": "kopf"})
def seen(body: Any, **_: Any) -> None:
    if body.get("status", {}).get("phase") == "Running":
        sys.stdout.write(f"running {body['metadata']['name']}\n")
