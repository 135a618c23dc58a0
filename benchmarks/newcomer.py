"""Walk docs/newcomer.md in a fresh environment: its commands as they stand, and the time that each part takes.

Reading is counted at 200 words a minute and typing at 200 characters a minute, all commands typed by hand.
"""

import os
import re
import subprocess
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

from _machine import Check, arguments, describe_machine, finish

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "newcomer.md"
WORDS_A_MINUTE, CHARACTERS_A_MINUTE = 200, 200
MADE = {
    "A scored model": ("scores.nc", "report.html"),
    "A baseline table of your own": ("mine.nc", "mine.pdf", "mine.tex"),
    "A constant in a paper": ("paper.pdf",),
}


def parts() -> dict[str, str]:
    """Split the page by its headings."""
    return dict(re.findall(r"^## (.*)\n((?:(?!^## ).*\n)*)", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE))


def walk(text: str, folder: Path, environment: dict[str, str]) -> dict[str, float]:
    """Do what one part says."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    running = 0.0
    for language, block in blocks:
        if language == "latex":
            (folder / "paper.tex").write_text(block, encoding="utf-8")
            continue
        if language == "console":  # what a command above has printed
            continue
        for command in block.splitlines():
            where = ROOT if command == "pip install ." else folder
            begin = time.perf_counter()
            subprocess.run(command, shell=True, check=True, cwd=where, env=environment, stdout=subprocess.DEVNULL)
            running += time.perf_counter() - begin
    reading = 60 * len(prose.split()) / WORDS_A_MINUTE
    typing = 60 * sum(len(block) for language, block in blocks if language != "console") / CHARACTERS_A_MINUTE
    return {"reading": reading, "typing": typing, "running": running, "minutes": (reading + typing + running) / 60}


def main() -> None:
    """Walk the page and write the times."""
    options = arguments("The newcomer's path, walked.", "newcomer.json")
    result: dict[str, Any] = {
        "benchmark": "newcomer",
        "command": "python benchmarks/newcomer.py",
        "machine": describe_machine(),
        "seconds": {},
    }
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as home:
        work = Path(home) / "work"
        work.mkdir()
        venv.create(Path(home) / "env", with_pip=True)
        environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        environment["PATH"] = f"{Path(home) / 'env' / 'bin'}{os.pathsep}{environment['PATH']}"
        environment["XDG_CACHE_HOME"] = str(Path(home) / "cache")
        pip_cache = subprocess.run(["pip", "cache", "dir"], capture_output=True, text=True, check=False).stdout.strip()
        if pip_cache:
            environment["PIP_CACHE_DIR"] = pip_cache
        for name, text in parts().items():
            if "```" not in text:
                continue
            result["seconds"][name] = walk(text, work, environment)
            print(f"{name}: {result['seconds'][name]['minutes']:.1f} minutes", flush=True)
            missing = [file for file in MADE.get(name, ()) if not (work / file).is_file()]
            checks.append(Check(f"files missing after: {name}", len(missing), at_most=0))
            checks.append(Check(f"minutes: {name}", result["seconds"][name]["minutes"], at_most=5.0))
    finish(result, checks, options.output)


if __name__ == "__main__":
    main()
