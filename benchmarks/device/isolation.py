"""On a machine with a GPU: what a job reaches at level `gpu`. Run from the repository, with tilegate importable."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tilegate.sandbox import EVALUATE, Job, Level, run_job


def work(inputs: Mapping[str, bytes], emit: Callable[[str, bytes], None]) -> None:
    """A matrix product on the GPU, and a look around."""
    import torch

    a = torch.ones(256, 256, device="cuda", dtype=torch.float16)
    found: dict[str, object] = {"product": float((a @ a)[0, 0]), "device": torch.cuda.get_device_name()}
    attempts: dict[str, Callable[[], object]] = {
        "secret": lambda: Path(inputs["secret"].decode()).read_text(),
        "parent": lambda: Path(f"/proc/{inputs['parent'].decode()}/environ").read_bytes(),
        "home": lambda: list(Path("/root").iterdir()),
        "socket": lambda: socket.socket().close(),
        "tiocsti": lambda: __import__("fcntl").ioctl(0, 0x5412, b"x"),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
        except OSError as error:
            found[name] = f"refused: {error.strerror}"
        else:
            found[name] = "reached"
    emit("found", json.dumps(found).encode())


def main() -> int:
    with tempfile.NamedTemporaryFile("w", suffix=".key") as secret:
        secret.write("planted")
        secret.flush()
        inputs = {"secret": secret.name.encode(), "parent": str(os.getpid()).encode()}
        here = str(Path(__file__).parent)
        for level in (Level.GPU, Level.NONE):
            result = run_job(
                Job(task="isolation:work", inputs=inputs, import_paths=(here,)),
                EVALUATE.at(level).within(memory_bytes=1 << 46),
            )
            print(result.isolation, result.ending.value, f"{result.wall_s:.1f} s")
            for _, data in result.frames:
                for name, what in json.loads(data).items():
                    print(f"  {name:8} {what}")
            if not result.frames:
                print(result.output.decode(errors="replace")[-2000:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
