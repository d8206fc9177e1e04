"""Run of a simulation: virtual time, the course of events, and placements without a cluster around them."""
