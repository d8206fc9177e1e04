"""Structured allocator: chooses the devices that a ResourceClaim gets on a node.

The parts, in the order of use:

* :class:`~kubesched.scheduler.dra.features.Features`: the gates that are on.
* :class:`~kubesched.scheduler.dra.inventory.Inventory`: all ResourceSlices, fed by their events (``put``, ``remove``).
* :class:`~kubesched.scheduler.dra.allocated.AllocatedDevices`: devices in use, fed claim by claim (``set_claim``).
* :class:`~kubesched.scheduler.dra.allocator.Allocator`: ``demand`` claims, ask for ``verdicts`` of many nodes,
  ``allocate`` on one of them. It never changes its inputs: the caller records an allocation with
  ``AllocatedDevices.set_claim``.
* :mod:`~kubesched.scheduler.dra.failures`: the errors, with upstream's texts.

Slices become :mod:`pools <kubesched.scheduler.dra.pools>` of devices with :mod:`models
<kubesched.scheduler.dra.models>`, and a :mod:`view <kubesched.scheduler.dra.view>` per node. Claims become :mod:`wants
<kubesched.scheduler.dra.wanted>`. A :mod:`search <kubesched.scheduler.dra.device_search>` chooses devices, and
:mod:`results <kubesched.scheduler.dra.results>` writes them down. Nothing here knows of plugins, queues or an API
server.
"""
