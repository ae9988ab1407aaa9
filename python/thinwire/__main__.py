"""``python -m thinwire``: the program that came with the package."""

import os
import sys
from pathlib import Path
from typing import NoReturn

PROGRAM = Path(__file__).with_name("bin") / "thinwire"

_MISSING = f"""thinwire: the program is not in this installation of the package (no {PROGRAM}).
The package itself works without it. To get the program, in a checkout of thinwire:
    ./wheel && pip install --force-reinstall dist/*.whl    # the package with the program inside
    cargo install --path crates/thinwire-cli               # the program alone"""


def main() -> NoReturn:
    """Becomes the program, with the same arguments."""
    if not PROGRAM.is_file():
        sys.exit(_MISSING)
    try:
        os.execv(PROGRAM, ["thinwire", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"thinwire: can't run {PROGRAM}: {error.strerror}")


if __name__ == "__main__":
    main()
