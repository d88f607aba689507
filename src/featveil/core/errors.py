"""Everything featveil raises on purpose.

FeatveilError
├── InputError           an argument or a user's file content cannot be used
├── NotFittedError       a method was used before it had what it learns from
├── PrivacyError         the request would release something known to be unsafe
├── NotMappedError       a photograph shows too little of a map: nothing of it is released
├── FormatError          a featveil, hloc or COLMAP file is damaged, hostile or of another version
├── DatasetError         a dataset folder does not have the layout it should
└── MissingExtraError    an optional dependency is needed and absent

A message says what was expected, what came and what to do. It never quotes a descriptor.
"""


class FeatveilError(Exception):
    """Base of all featveil errors; the command line prints it as one line and exits with its `exit_code`."""

    exit_code = 2


class InputError(FeatveilError, ValueError):
    """An argument cannot be used."""


class NotFittedError(FeatveilError):
    """A method was used before it was fitted."""


class PrivacyError(FeatveilError):
    """The request is refused because it is known to reveal what it should hide."""


class NotMappedError(FeatveilError):
    """A photograph shows too little of a map for anything of it to be released."""

    exit_code = 3


class FormatError(FeatveilError):
    """A file is damaged, hostile or of an unknown version."""


class DatasetError(FeatveilError):
    """A dataset folder lacks what its layout promises."""


class MissingExtraError(FeatveilError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs {package}, which is not installed: pip install 'featveil[{extra}]'")


def shown(value: object) -> str:
    """A value as a message shows it: the start of its repr, or its type where Python refuses one of so many digits."""
    try:
        return f"{value!r:.40}"
    except ValueError:
        return type(value).__name__
