"""``kubesched run``: the drop-in command. Flags, options and log lines are as kube-scheduler has them.

:mod:`.flags` is the table of flags, and :mod:`.flagset` reads a command line with it. :mod:`.values` has the types of
values. :mod:`.options` makes checked options from the flags and the configuration file. :mod:`.logs` writes log lines
in klog's formats.
"""
