"""A small CNN learns handwritten digits, eagerly and compiled. Read and change tandem/training/quickstart.py."""

import sys

from tandem.cli import main

if __name__ == "__main__":
    sys.exit(main(["quickstart", *sys.argv[1:]]))
