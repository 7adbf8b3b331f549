"""Generalized linear models: links, losses, likelihoods, priors."""
