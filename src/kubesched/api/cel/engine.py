"""Loader of the CEL library, which is imported when it is first needed."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from kubesched.base.extras import MissingPackageError, how_to_install

__all__ = ["MissingLibraryError", "library"]


class MissingLibraryError(MissingPackageError):
    """The CEL library cannot be imported on this platform."""


@cache
def library() -> Any:
    """Return the module of the CEL library.

    Raises:
        MissingLibraryError: if it is not installed.
    """
    try:
        # The library imports protobuf's messages with its first environment, and aborts the process if a signal handler
        # raises during that. So they are imported here first.
        importlib.import_module("google.protobuf.message_factory")
        return importlib.import_module("cel_expr_python.cel")
    except ImportError as error:
        raise MissingLibraryError(
            f"CEL expressions need the packages cel-expr-python and protobuf, which cannot be imported: {error}; "
            f"every installation has them: {how_to_install()}"
        ) from None
