"""What every policy is: what it is asked, what it answers, and what a private one releases."""
