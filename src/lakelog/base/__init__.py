"""What every layer may use: error codes, ids, hashing, configuration tables."""
