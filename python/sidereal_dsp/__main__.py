"""The `sidereal` command."""

import signal
import sys

from ._sidereal import run_command


def main() -> None:
    """Run the command line with the arguments of this process, and end the process with its exit code."""
    # Python's own handler would raise KeyboardInterrupt after a run that has stopped by itself.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(run_command(["sidereal", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
