"""First set of constants, as released. The digits of its constants never change.

    >>> from rmtbase.constants import v1
    >>> v1.tracy_widom_1_mean.id
    'rmtbase:constants.v1/tracy_widom_1_mean'
    >>> v1.date
    '2026-11-23'

It has ``constants()``, ``functions()``, ``groups()``, ``find()``, ``date`` and ``sha256``; see
:class:`rmtbase.constants.ConstantSet`. The newest set is :mod:`rmtbase.constants` itself.
"""

import sys

from rmtbase.constants._registry import V1
from rmtbase.constants._release import SetModule

_SET = V1
sys.modules[__name__].__class__ = SetModule
