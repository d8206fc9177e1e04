"""DynamicResources: claims and their allocations as the scheduler counts them. The choice of devices is :mod:`kubesched.scheduler.dra`."""
