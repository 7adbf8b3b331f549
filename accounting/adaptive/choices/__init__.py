"""Adaptive composition of private choices (noisy maxima), as games that an adversary plays."""
