"""Arguments of each command, in modules of their own, so that help imports nothing heavy.

:mod:`.simulations`, :mod:`.clusters`, :mod:`.measurements` and :mod:`.small` have a function per command, which
:mod:`kubesched.cli.main` names. :mod:`.options` has the options that several commands have, and :mod:`.values` the
forms of their values.
"""
