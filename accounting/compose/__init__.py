"""Adding privacy losses: convolutions, and the accountant that uses them."""
