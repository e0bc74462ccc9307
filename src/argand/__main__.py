"""``python -m argand``."""

import sys

from argand.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
