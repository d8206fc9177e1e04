"""The commands of ``kubesched``: parsing, printing and exit codes. The work is done in the packages below."""
