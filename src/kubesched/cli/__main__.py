"""``python -m kubesched.cli``."""

import sys

from .main import main

sys.exit(main())
