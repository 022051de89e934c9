"""Linear algebra: factorisations by LAPACK (src/library/linalg), everything else composed of them. td.linalg has the names."""

from tandem.ops.linalg import ldl, lowrank, norms, products, qr, solve, spectral, triangular
