"""A trajectory of 20 checkpoints: killed at random moments and gone on with, against one that nothing interrupts.

The checkpoints lie on the way from the first to the last of the bundled model, and are scored from a folder; so that a
run can be killed at any moment, by SIGKILL, each is started again until it ends. Every file is compared with that of
the uninterrupted run byte by byte. Then the same checkpoints are fetched from a hub, a stand-in on this machine that
the client of huggingface_hub speaks to over HTTP: how much of them is on the disk at any time. Beside that, processor
time for each checkpoint and peak memory of runs of 5 and 20, and what a look at a live model takes.

    python benchmarks/trajectory.py [--quick] [--output FILE]
"""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from _machine import RMTBASE, Check, arguments, describe_machine, finish, recorded, run_process
from rmtbase.models import open_model
from rmtbase.results import open_table
from rmtbase.watch import Watcher

CHECKPOINTS, RUNS, QUICK_RUNS = 20, 6, 1
LOOKS = 10
SEED = 2026


def write_checkpoints(folder: Path) -> Path:
    """Straight from the first of the bundled model's checkpoints to its last."""
    first, last = (open_model("demo", name).path for name in ("step-0", "final"))
    begin, end = (load_file(path / "model.safetensors") for path in (first, last))
    for k in range(CHECKPOINTS):
        place = folder / f"step-{100 * k}"
        place.mkdir(parents=True)
        share = np.float32(k / (CHECKPOINTS - 1))
        tensors = {name: ((1 - share) * one + share * end[name]).astype(np.float32) for name, one in begin.items()}
        save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
        shutil.copy(first / "config.json", place)
    return folder


os.environ["RMTBASE_PROOF"] = "0"  # the time of scoring only


def command(model: object, output: Path, *options: str) -> list[str]:
    """``rmtbase trajectory``."""
    return [*RMTBASE, "trajectory", str(model), "-o", str(output), *options]


def killed_until_it_ends(model: Path, output: Path, chance: random.Random, seconds: float) -> int:
    """Start a run and kill it after a random time, until one ends; return the number of kills."""
    kills = 0
    while True:
        with subprocess.Popen(command(model, output), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            try:
                running.wait(chance.uniform(0.3, 1.0) * seconds * (1 + 0.5 * kills))
            except subprocess.TimeoutExpired:
                running.send_signal(signal.SIGKILL)
                kills += 1
        if running.returncode == 0:
            return kills
        if running.returncode != -signal.SIGKILL:
            raise RuntimeError(f"status {running.returncode}")


@contextmanager
def local_hub(folder: Path) -> Iterator[str]:
    """Serve a hub with one model, each of whose checkpoints is a tag; yield its address."""
    commits = {path.name: hashlib.sha1(path.name.encode()).hexdigest() for path in folder.iterdir()}
    paths = {commit: folder / name for name, commit in commits.items()}

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, body: bool) -> None:
            parts = self.path.split("?")[0].strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                self._send(json.dumps(self._api(parts[4:])).encode(), body, {})
            elif len(parts) < 5:
                self.send_error(404)
            else:  # OWNER/NAME/resolve/REVISION/FILE
                commit = commits.get(parts[3], parts[3])
                content = (paths[commit] / parts[4]).read_bytes()
                etag = hashlib.sha256(content).hexdigest()
                self._send(content, body, {"X-Repo-Commit": commit, "ETag": f'"{etag}"'})

        def _api(self, asked: list[str]) -> Any:
            if asked[0] == "refs":
                tags = [
                    {"name": name, "ref": f"refs/tags/{name}", "targetCommit": sha} for name, sha in commits.items()
                ]
                return {"branches": [], "tags": tags, "converts": []}
            commit = commits.get(asked[1], asked[1])
            if asked[0] == "tree":
                return [
                    {"type": "file", "path": path.name, "size": path.stat().st_size, "oid": path.name}
                    for path in paths[commit].iterdir()
                ]
            files = [{"rfilename": path.name} for path in paths[commit].iterdir()]
            return {"id": "bench/model", "modelId": "bench/model", "sha": commit, "siblings": files, "tags": []}

        def _send(self, content: bytes, body: bool, headers: dict[str, str]) -> None:
            self.send_response(200)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()


def fetched_from_a_hub(folder: Path, root: Path) -> tuple[int, int, Path]:
    """Most bytes of weights on the disk at any time of a run, those of one checkpoint, and the file."""
    output, home = root / "hub.nc", root / "home"
    most = 0
    with local_hub(folder) as address:
        environment = os.environ | {"HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
        environment.pop("HF_HUB_OFFLINE", None)
        with subprocess.Popen(command("bench/model", output), env=environment, stdout=subprocess.DEVNULL) as running:
            while running.poll() is None:
                most = max(most, sum(map(_size, _blobs(root, home))))
                time.sleep(0.001)
    if running.returncode:
        raise RuntimeError(f"status {running.returncode}")
    left = [*_blobs(root, home), *root.glob("hub.nc.steps")]
    if left:
        raise RuntimeError(f"left behind: {left}")
    one = sum(path.stat().st_size for path in next(folder.iterdir()).iterdir())
    return most, one, output


def _blobs(*folders: Path) -> list[str]:
    """List the files that the hub's client has fetched; folders may come and go meanwhile."""
    return [
        os.path.join(folder, name)  # noqa: PTH118
        for top in folders
        for folder, _, names in os.walk(top)
        if folder.endswith("blobs")
        for name in names
    ]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return 0


def looks(model: Path, root: Path) -> list[dict[str, float]]:
    """Time each look at a state dict in memory."""
    tensors = load_file(model / "model.safetensors")
    config = json.loads((model / "config.json").read_text())
    watcher, taken = Watcher(root / "watch.nc", config=config, budget=None), []
    for step in range(LOOKS):
        begin = os.times()
        watcher.look(tensors, step)
        end = os.times()
        cpu = end.user + end.system - begin.user - begin.system
        taken.append({"cpu_seconds": cpu, "seconds": watcher.seconds[-1], "bytes": (root / "watch.nc").stat().st_size})
    return taken


def main() -> None:
    options = arguments("Trajectories that are killed, fetched and watched.", "trajectory.json")
    runs, checks = (QUICK_RUNS if options.quick else RUNS), []
    with tempfile.TemporaryDirectory(prefix="rmtbase-benchmark-") as scratch:
        root = Path(scratch)
        folder = write_checkpoints(root / "run")
        few = root / "few"
        few.mkdir()
        for k in range(5):
            shutil.copytree(folder / f"step-{100 * k}", few / f"step-{100 * k}")
        whole, short = (run_process(command(one, root / f"{one.name}.nc")) for one in (folder, few))
        expected = (root / "run.nc").read_bytes()
        chance, kills, same = random.Random(SEED), [], 0
        for number in range(runs):
            output = root / f"killed-{number}.nc"
            kills.append(killed_until_it_ends(folder, output, chance, whole.seconds))
            same += output.read_bytes() == expected and not output.with_name(f"{output.name}.steps").exists()
        most, one, fetched = fetched_from_a_hub(folder, root)
        heads = [open_table(path, "trajectory")["heads"]["observed"].values for path in (fetched, root / "run.nc")]
        taken = looks(folder / "step-1900", root)
    each = (whole.cpu_seconds - short.cpu_seconds) / (CHECKPOINTS - 5)
    checks.append(Check(f"of {runs} runs, killed {sum(kills)} times: the same file to the bit", same, at_least=runs))
    checks.append(
        Check("peak memory of 20 checkpoints over that of 5", whole.peak_rss_gib / short.peak_rss_gib, at_most=1.1)
    )
    checks.append(
        Check("statistics of checkpoints fetched that differ", float((heads[0] != heads[1]).sum()), at_most=0)
    )
    checks.append(Check("bytes on the disk at any time over those of one checkpoint", most / one, at_most=1.0))
    result = {
        "benchmark": "trajectory",
        "command": "python benchmarks/trajectory.py" + (" --quick" if options.quick else ""),
        "machine": describe_machine(),
        "checkpoints": CHECKPOINTS,
        "bytes_of_a_checkpoint": one,
        "cpu_seconds_for_each_checkpoint": each,
        "runs": {"20": recorded(whole), "5": recorded(short)},
        "kills": kills,
        "most_bytes_fetched_at_a_time": most,
        "looks": taken,
    }
    finish(result, checks, options.output)


if __name__ == "__main__":
    main()
