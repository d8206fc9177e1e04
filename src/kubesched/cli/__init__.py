"""The commands of ``kubesched``: parsing, printing and exit codes. The work is done in the rooms below."""
