"""Where the `lanewise` program starts: Ctrl-C ends it cleanly even while Python is still importing."""

import gc
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    gc.set_threshold(100_000)  # imports and a vocabulary make a hundred thousand objects that stay: looking through them finds no garbage
    try:
        from lanewise.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
