"""Entry point of ``python -m kubesched.cli``, which is the command ``kubesched``."""

import sys

from .first import main

if __name__ == "__main__":
    sys.exit(main())
