"""Annotations on pods, written when asked for.

:mod:`.why` says on one line why a pod is pending. :mod:`.writer` writes, at a limited rate. Callers: ``kubesched run``
and ``kubesched up``.
"""

from .why import WhyPending
from .writer import AnnotationWriter

__all__ = ["AnnotationWriter", "WhyPending"]
