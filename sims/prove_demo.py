"""Prove the bundled model, and write the proofs that ship with it: ``python sims/prove_demo.py``."""

import json

from rmtbase.models import demo_revisions, open_model
from rmtbase.models.files._demo import demo_root
from rmtbase.models.forward._proof import DEMO_PROOFS


def proofs() -> dict[str, str]:
    """Prove every revision anew: digest of what was proved -> the note about it."""
    found = {}
    for name in demo_revisions():
        model = open_model("demo", name)
        found[model.proof_subject()] = model.proved_now().note
    return found


def main() -> None:
    """Write the file."""
    text = json.dumps(proofs(), indent=1, ensure_ascii=False)
    (demo_root() / DEMO_PROOFS).write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
