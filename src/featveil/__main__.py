"""`python -m featveil` is the `featveil` command."""

from featveil.cli import app

if __name__ == "__main__":
    app(prog_name="featveil")
