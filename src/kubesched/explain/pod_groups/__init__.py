"""Explanations of pod groups: the group is the unit, and each number is that of a trial of the whole group.

``trials.py`` runs the trials, ``engine.py`` explains a group by them, ``changes.py`` finds what would help, and
``words.py`` and ``text.py`` say it.
"""

from .engine import GroupExplainer

__all__ = ["GroupExplainer"]
