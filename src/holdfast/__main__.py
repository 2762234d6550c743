"""``python -m holdfast``: the command line."""

import sys

from holdfast.cli.main import main

sys.exit(main())
