"""Shared by all tests: hypothesis profiles, signals."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile("default", deadline=None, max_examples=60, derandomize=True, suppress_health_check=_SLOW)
settings.register_profile("sweep", deadline=None, max_examples=2000, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# A shell starts what runs in the background with SIGINT ignored, and the programs that tests start inherit that: they could
# not be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
