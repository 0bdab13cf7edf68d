"""`tilegate` on the command line. The commands need click and rich; serving does not."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from tilegate.cli import commands  # noqa: PLC0415 - serving machines have no click
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("click", "rich"):
            raise
        sys.stderr.write(f"error: the commands need {error.name}\nnext: pip install 'tilegate[cli]'\n")
        sys.exit(3)
    commands(prog_name="tilegate")


if __name__ == "__main__":
    main()
