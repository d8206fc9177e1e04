"""Retired parts of Kubernetes: configuration versions, flags and plugins that 1.36 no longer has."""
