"""Plugins for storage: VolumeBinding, VolumeRestrictions, VolumeZone, NodeVolumeLimits, and what they share."""
