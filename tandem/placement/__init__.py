"""Where a graph runs, and what crosses between devices. See README.md here."""
