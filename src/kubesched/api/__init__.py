"""Kubernetes objects as the scheduler reads them: types, quantities, selectors, tolerations, requests.

Imports nothing of ours; every other room may import it.
"""
