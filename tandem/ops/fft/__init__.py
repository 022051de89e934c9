"""Fourier transforms (src/library/fft). td.fft has the names."""

from tandem.ops.fft import frequencies, short_time, transforms
