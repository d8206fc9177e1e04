"""Plugins for storage: VolumeBinding, VolumeRestrictions, VolumeZone, NodeVolumeLimits, and their common parts."""
