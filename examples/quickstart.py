"""A small CNN learns handwritten digits, eagerly and compiled. Read and change tandem/training/quickstart.py."""

from tandem.cli import main

if __name__ == "__main__":
    main(["quickstart"])
