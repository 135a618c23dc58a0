"""``python -m rmtbase.constants`` prints the table of digits anew, as it stands in ``digits.json``."""

import json

from rmtbase.constants import constants
from rmtbase.constants._published import recomputed

print(json.dumps({constant.name: recomputed(constant) for constant in constants()}, indent=1))
