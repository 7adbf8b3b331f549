"""The reference policies, which protect nobody: what private ones are compared with."""
