"""Results of a simulation: the typed result, the reasons of pending pods, reports, tables and plots."""
