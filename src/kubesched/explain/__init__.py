"""Explanations of decisions: why a pod is pending, why it is where it is, and what would change that.

    pending ──obstacles──▶ what stands in the way, by row ──remedies──▶ smallest sets of changes, each evaluated
    placed  ──scores─────▶ the best nodes, by plugin      ──turns─────▶ changes after which another node wins

:class:`.explainer.Explainer` has every answer. Each is evaluated with the scheduler's own plugins, on changed copies of
pods or in what-ifs; nothing of the cluster is changed. Callers: simulations, the demonstration, the server of a live
scheduler, and ``kubesched explain``.

This package imports nothing by itself: ``kubesched run`` loads its parts when they are asked for.
"""
