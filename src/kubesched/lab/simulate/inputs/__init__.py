"""Inputs of a simulation: manifests, tables of pods, arrivals in time, and the order of creating their objects."""
