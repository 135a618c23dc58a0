"""``python -m rmtbase.constants`` prints the table of digits anew, as it stands in ``digits.json``."""

import json

from rmtbase.constants import constants
from rmtbase.constants._constant import PUBLISHED_DIGITS
from rmtbase.constants._digits import agreed_digits

digits = {one.name: agreed_digits(one.compute, min(PUBLISHED_DIGITS, one.most_digits)) for one in constants()}
print(json.dumps(digits, indent=1))
