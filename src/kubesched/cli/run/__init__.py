"""``kubesched run``: the drop-in command. Flags, options and logging as kube-scheduler has them.

:mod:`.flags` is the table of flags, :mod:`.flagset` reads a command line by it, :mod:`.values` holds the types of
values, :mod:`.options` makes a checked set of options out of both and of the configuration file, :mod:`.logs` writes
log lines in klog's formats.
"""
