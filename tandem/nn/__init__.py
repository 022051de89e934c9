"""What networks are built from."""

from tandem.nn import functional as functional
