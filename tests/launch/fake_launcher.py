"""`baton serve` with fake roles: python -m tests.launch.fake_launcher STATE_DIR [KEY=VALUE ...]."""

import sys

from rich.console import Console

from core.environment import Environment
from core.errors import SetupError
from launch.serve import serve
from launch.serve_options import ServeOptions
from tests.launch.support import FAKE_COMMAND, TINY_MODEL

if __name__ == "__main__":
    try:
        code = serve(
            ServeOptions(
                state_dir=sys.argv[1],
                model=TINY_MODEL,
                kv_bytes="2MiB",
                port=0,
                settings=tuple(sys.argv[2:]),
            ),
            Environment(),
            Console(),
            FAKE_COMMAND,
        )
    except SetupError as error:
        print(f"baton: {error}")
        code = 2
    sys.exit(code)
