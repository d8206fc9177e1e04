"""Functions that the tests' sweeps call: cheap ones that succeed, fail, or end their process."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any


def square(x: int, seed: int = 0, offset: float = 0.0) -> dict[str, Any]:
    return {"value": x * x + offset + random.Random(seed).random(), "half": x / 2}


def fragile(x: int) -> dict[str, Any]:
    """Fail by ``x`` in the ways a run may: raise, exit, be killed, or return nonsense."""
    if x == 1:
        raise ValueError("one is not accepted")
    if x == 2:
        os._exit(7)
    if x == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if x == 4:
        return {"value": [1, 2]}
    if x == 5:
        return {"value": float("nan")}
    if x == 6:
        raise SystemExit(0)
    return {"value": x}


def slow(x: int) -> dict[str, Any]:
    if x == 1:
        time.sleep(600)
    return {"value": x}


def traced(x: int, log: str) -> dict[str, Any]:
    """Records in a directory that it was called."""
    Path(log, f"{x}-{os.getpid()}-{time.monotonic_ns()}").touch()
    return {"value": 2 * x}


def gated(x: int, gate: str) -> dict[str, Any]:
    """Ends for x below 20, and for others once the file ``gate`` exists."""
    while x >= 20 and not Path(gate).exists():
        time.sleep(0.01)
    return {"value": x}
