"""Inputs of a simulation: manifests, tables of pods, arrivals in time, and the order in which their objects are created."""
