"""Commands of ``kubesched``: parsing, printing and exit codes. Other packages do the work."""
