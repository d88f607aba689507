"""Photographs of one's own -> every attack against every defense, what still matches, and one page.

`featveil.audit(photographs, out)` audits: the package is called like the function, so it can be called like it.
"""

import sys
from types import ModuleType
from typing import Any


class _Audit(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """See `featveil.audit.run.audit`."""
        from featveil.audit.run import audit

        return audit(*arguments, **options)


sys.modules[__name__].__class__ = _Audit
