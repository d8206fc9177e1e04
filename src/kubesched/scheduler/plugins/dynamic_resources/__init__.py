"""DynamicResources plugin: claims and their allocations, as the scheduler counts them.

The choice of devices is in :mod:`kubesched.scheduler.dra`.
"""
