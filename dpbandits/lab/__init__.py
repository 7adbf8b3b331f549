"""Where policies are tried: environments, simulations, results, the price of privacy, evaluation of logs."""
