"""What the records of an audit are called: those who measure and those who report agree on it here."""

TASK = "audit"
UTILITY = (
    "matches, right matches, verified, right verified"  # metric of a record of matches, in the order of its values
)
SKIPPED = "skipped"  # metric of a record of an attack that was not run
SIDES = ("one", "both")  # of a pair that are private: the query, or the map too
