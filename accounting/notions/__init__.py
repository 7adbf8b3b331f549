"""One notion of privacy per file: Gaussian, pure, concentrated and Rényi differential privacy."""
