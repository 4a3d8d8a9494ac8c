"""`python -m artf_cli`."""

from artf_cli.cli import run

if __name__ == "__main__":
    run()
