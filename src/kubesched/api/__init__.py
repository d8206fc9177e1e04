"""Kubernetes objects as the scheduler reads them: types, quantities, selectors, tolerations, requests.

Imports no other package of kubesched; every other package may import it.
"""
