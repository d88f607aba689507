"""What the records of an audit are called: those who measure and those who report agree on it here."""

TASK = "audit"
UTILITY = (
    "matches, right matches, verified, right verified"  # metric of a record of matches, in the order of its values
)
SKIPPED = "skipped"  # metric of a record of an attack that was not run
SIDES = ("one", "both")  # of a pair that are private: the query, or the map too
PICTURES_TASK = "audit pictures"  # its records are of pictures, and metrics/reconstruction.py says how near they are
UNSCORED = "picture"  # metric of a record of a picture that is compared with nothing
PHOTOGRAPH = "photograph"  # scheme of the record of the photograph itself
