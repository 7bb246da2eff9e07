"""``python -m shardpass``: the command line."""

import sys

from shardpass.cli.main import main

sys.exit(main())
