"""Golden vectors about protobuf bodies: each must decode to the object that Kubernetes gives in JSON."""

from __future__ import annotations

import base64
from typing import Any

from kubesched.api.wire import ApiError
from kubesched.base.extras import MissingPackageError
from kubesched.cluster.schema import drop_nulls

from .comparison import Comparison

__all__ = ["compare_body"]


def compare_body(comparison: Comparison, vector: dict[str, Any]) -> None:
    """Compare the members of the decoded object with the recorded ones, where null means absent."""
    expected = drop_nulls(vector["expected"])
    raw = base64.b64decode(vector["scenario"]["body"], validate=True)
    try:
        from kubesched.cluster.http import PROTOBUF, decode_body  # noqa: PLC0415 - an extra

        body = decode_body(raw, PROTOBUF).data
    except MissingPackageError as error:
        comparison.leave("body", str(error))
        return
    except ApiError as error:
        comparison.fail("body", f"body: {error}")
        return
    for member in sorted(expected.keys() | body.keys()):
        comparison.check("body", member, expected.get(member), body.get(member))
