"""Durations as text for people. Callers: the reports."""

from __future__ import annotations

__all__ = ["seconds"]


def seconds(value: float) -> str:
    """Return a duration for people: ``45s``, ``2h 5m``."""
    whole = round(value)
    if whole < 120:
        return f"{value:.3g}s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {whole % 60}s"
