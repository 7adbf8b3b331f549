"""What private policies are made of: records, refits, rules of choice and who is trusted."""
