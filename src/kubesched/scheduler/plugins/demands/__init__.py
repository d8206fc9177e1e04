"""Demands of pods that the in-tree plugins check, for explanations: one module a subject, one function a plugin."""
