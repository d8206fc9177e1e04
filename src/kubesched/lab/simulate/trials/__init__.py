"""Trials over a cluster that stands still: pods placed and taken back, nodes put up and taken down, drains."""
