"""Text of a pod's rejection: the number of nodes by reason (upstream ``FitError``; rules/cycle §7.1)."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["fit_error_text"]


def fit_error_text(all_nodes: int, reasons: Mapping[str, int]) -> str:
    """Return ``0/5 nodes are available: 2 reason, 3 other reason.``

    ``reasons`` is the number of nodes by reason. Entries are sorted as plain strings: "10 x" comes before "2 y".
    """
    text = f"0/{all_nodes} nodes are available:"
    if reasons:
        text += f" {', '.join(sorted(f'{count} {reason}' for reason, count in reasons.items()))}."
    return text
