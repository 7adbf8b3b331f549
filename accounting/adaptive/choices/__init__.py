"""Many private choices: games that an adversary plays against them."""
