"""Kubernetes objects as the scheduler reads them: types, quantities, selectors, tolerations, requests.

This package imports no other package of kubesched; all others may import it.
"""
