"""Entry point of ``python -m kubesched``, which runs the command ``kubesched``."""

import sys

from kubesched.cli.first import main

if __name__ == "__main__":
    sys.exit(main())
