"""``python -m weft.tb.cli``: the command line without its installed script."""

from weft.tb.cli import app

if __name__ == "__main__":
    app()
