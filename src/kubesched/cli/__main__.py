"""``python -m kubesched.cli``: the same as the command ``kubesched``."""

import sys

from .first import main

if __name__ == "__main__":
    sys.exit(main())
