"""The structured allocator: which devices a ResourceClaim gets on a node.

The parts, in the order of use:

* :class:`~kubesched.dra.features.Features`: which gates are on.
* :class:`~kubesched.dra.interface.Inventory`: all ResourceSlices, fed by their events.
* :class:`~kubesched.dra.allocated.AllocatedDevices`: what is in use, fed claim by claim.
* :class:`~kubesched.dra.interface.DeviceAllocator`: ``plan`` claims, ask for ``verdicts`` of many nodes, ``allocate`` on
  one of them. It never changes what it reads: the caller records an allocation with ``AllocatedDevices.set_claim``.
* :mod:`~kubesched.dra.failures`: how it fails, with upstream's texts.

Nothing here knows of plugins, queues or an API server.
"""
