"""One road from a graph to what runs: a Request goes in, a Program comes out (driver.py). See README.md here."""
