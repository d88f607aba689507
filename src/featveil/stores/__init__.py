"""SQLite files that must not lose anything: the ledger, the pool, face templates."""
