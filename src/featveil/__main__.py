"""The `featveil` command, also as `python -m featveil`."""

import sys


def main() -> None:
    """Entry point. Ctrl-C while the command is loaded ends it in one line, as Ctrl-C does at any later time."""
    try:
        from featveil.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("stopped: nothing was left half-written\n")
        raise SystemExit(130) from None
    run()


if __name__ == "__main__":
    main()
