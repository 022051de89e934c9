"""The processor that runs Python as what steps are made for."""
