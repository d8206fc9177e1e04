"""Scheduler: it watches an API server, keeps a queue of pods, and decides on which node each pod runs.

Packages, each importing only those below it::

    loading.py               registry of plugins, and configuration, from modules and files
    scheduler.py             assembly: informers, queue, profiles, cycle
    core/                    one cycle: search, layers, binding, failure
    plugins/  extenders/     in-tree plugins; HTTP extenders
    queue/  cache/           pods that wait; nodes and the pods on them
    framework/               plugin contract, and the runtime that calls plugins
    dra/                     allocation of devices
    nodes/                   table of nodes and pods that plugins read
    config/                  configuration file, flags, feature gates
"""
