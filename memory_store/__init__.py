"""Everything the product remembers, in one SQLite file; nothing else knows SQL."""
