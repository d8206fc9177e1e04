"""GPUs that a pod requests, in the annotations that open-simulator's GPU sharing established."""

from typing import NamedTuple

#: Thousandths of each GPU (pod annotation).
GPU_MILLI = "alibabacloud.com/gpu-milli"
#: How many GPUs (pod annotation; an extended resource of nodes).
GPU_COUNT = "alibabacloud.com/gpu-count"
#: Which GPUs of its node a pod uses, such as ``0-3`` (pod annotation).
GPU_INDEX = "alibabacloud.com/gpu-index"

WHOLE = 1000


class GpuRequest(NamedTuple):
    """``milli`` thousandths of each of ``count`` GPUs."""

    milli: int
    count: int

    @property
    def total(self):
        return self.milli * self.count


NOTHING = GpuRequest(0, 0)


def gpu_request(pod):
    """The request of a pod (PodInfo or Pod).

    Raises:
        ValueError: naming the annotation, its value, and what would be right.
    """
    annotations = pod.metadata.annotations
    if not annotations or GPU_MILLI not in annotations:
        return NOTHING
    milli = _number(annotations, GPU_MILLI)
    count = _number(annotations, GPU_COUNT) if GPU_COUNT in annotations else 1
    if milli == 0 or count == 0:
        return NOTHING
    if milli > WHOLE:
        raise ValueError(f"annotation {GPU_MILLI}: {milli}; expected at most {WHOLE} thousandths of each GPU")
    return GpuRequest(milli, count)


def gpu_indexes(pod):
    """The GPUs of its node that a pod's annotation names; empty when it has none.

    Raises:
        ValueError: when it is not a list of numbers.
    """
    text = (pod.metadata.annotations or {}).get(GPU_INDEX, "")
    parts = text.split("-") if text else []
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise ValueError(f"annotation {GPU_INDEX}: {text!r}; expected numbers such as 0-3")
    return [int(part) for part in parts]


def _number(annotations, name):
    text = annotations[name]
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"annotation {name}: {text!r}; expected a whole number of 0 or more")
    return int(text)
