"""Nodes that come and go during a run: an autoscaler in virtual time, interruptions, drains."""
