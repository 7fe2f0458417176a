"""Where the `lanewise` program starts: Ctrl-C ends it cleanly even while Python is still importing."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    try:
        from lanewise.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
