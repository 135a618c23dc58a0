"""Files of a study: its modules, under names that no other study's can take, and what its JSON holds."""

import importlib.util
import json
import sys
from pathlib import Path

STUDIES = Path(__file__).parents[2] / "studies"


def study_module(study, name):
    """A file of a study as a module; it can import those beside it."""
    spec = importlib.util.spec_from_file_location(f"{study}_{name}", STUDIES / study / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(STUDIES / study))
    before = {*sys.modules}
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(STUDIES / study))
        for neighbour in {path.stem for path in (STUDIES / study).glob("*.py")} - before:
            sys.modules.pop(neighbour, None)
    return module


def held(study, name="results.json"):
    """What a JSON file of a study holds."""
    return json.loads((STUDIES / study / name).read_text(encoding="utf-8"))
