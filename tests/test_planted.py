"""Secrets of whoever builds are planted where they usually lie. A factory looks for them all and finds none."""

import json
import socket
import subprocess
import threading

import msgspec
import pytest

from tests import world
from tests.elaborations import SCALED, bound, closure_of
from tilegate.build import jobs
from tilegate.build.requests import ElaborateRequest, Failure
from tilegate.records.trace import CompilerTrace
from tilegate.rules.expansion import expand
from tilegate.sandbox import ELABORATE, Level, run_job

TOKEN = "planted-9f31c0de"

LOOK = """
import glob, json, os, socket

def contents(pattern):
    for path in glob.glob(pattern, recursive=True):
        try:
            with open(path, "rb") as file:
                yield file.read(1 << 20).decode("latin-1")
        except OSError:
            continue

def connects(family, address):
    try:
        with socket.socket(family, socket.SOCK_STREAM) as one:
            one.settimeout(3)
            one.connect(address)
            return "connected"
    except OSError as error:
        return "refused"

def look(M, N, T):
    raise RuntimeError(json.dumps({{
        "environment": [n for n, v in os.environ.items() if "{token}" in v],
        "files of home": [p for p in ("{home}/.ssh/id_ed25519", "{home}/.netrc", "{home}/.config/token")
                          if os.path.exists(p) or any("{token}" in text for text in contents(p))],
        "environments of processes": sum("{token}" in text for text in contents("/proc/[0-9]*/environ")),
        "command lines of processes": sum("{token}" in text for text in contents("/proc/[0-9]*/cmdline")),
        "agent": connects(socket.AF_UNIX, "{agent}"),
        "metadata": connects(socket.AF_INET, ("169.254.169.254", 80)),
        "neighbour": connects(socket.AF_INET, ("127.0.0.1", {port})),
        "workspace": [p for p in ("{folder}/.tilegate", "{folder}/kernels.py") if os.path.exists(p)],
    }}))
"""


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A home with secrets, an agent, a service on the loopback, and a process of the user with a token."""
    home = tmp_path / "home"
    for name in (".ssh/id_ed25519", ".netrc", ".config/token"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(TOKEN)
    agent = str(home / "agent")
    with socket.socket(socket.AF_UNIX) as listening, socket.create_server(("127.0.0.1", 0)) as service:
        listening.bind(agent)
        listening.listen()
        for one in (listening, service):
            threading.Thread(target=serve, args=(one,), daemon=True).start()
        other = subprocess.Popen(["/bin/sleep", "600"], env={"AWS_SECRET_ACCESS_KEY": TOKEN})
        for name, value in (("HOME", str(home)), ("SSH_AUTH_SOCK", agent), ("AWS_SECRET_ACCESS_KEY", TOKEN)):
            monkeypatch.setenv(name, value)
        yield {
            "token": TOKEN,
            "home": home,
            "agent": agent,
            "port": service.getsockname()[1],
            "folder": tmp_path,
        }
        other.kill()
        other.wait()
        for one in (listening, service):
            one.shutdown(socket.SHUT_RDWR)


def serve(listening):
    try:
        while True:
            listening.accept()[0].close()
    except OSError:
        return


def run_factory(folder, text, level):
    """The job of the product, with all that it sent back and printed."""
    (folder / "kernels.py").write_text(text)
    closure, sources = closure_of(folder, bound("kernels:look"))
    (specialization,) = expand(closure.binding, SCALED)
    request = ElaborateRequest(
        contract=SCALED, closure=closure.digest, binding=closure.binding, files=closure.files,
        specialization=specialization,
    )  # fmt: skip
    job = jobs._job("tilegate.build.elaborate:work", request, closure.files, sources)
    return run_job(job, ELABORATE.at(level))


FOUND_NOTHING = {
    "environment": [], "files of home": [], "environments of processes": 0, "command lines of processes": 0,
    "agent": "refused", "metadata": "refused", "neighbour": "refused", "workspace": [],
}  # fmt: skip


@pytest.mark.compiler
@pytest.mark.parametrize("level", [Level.FULL, Level.REDUCED])
def test_no_planted_credential_is_readable_from_a_factory(planted, level):
    result = run_factory(planted["folder"], LOOK.format(**planted), level)
    ((name, data),) = result.frames
    assert name == "failure", result.output
    found = json.loads(msgspec.json.decode(data, type=Failure).message)
    if level is Level.REDUCED:  # names of files are not hidden there, nor command lines
        found |= {"files of home": [], "command lines of processes": 0, "workspace": []}
    assert found == FOUND_NOTHING


@pytest.mark.compiler
def test_the_same_factory_finds_them_where_nothing_is_in_its_way(planted):
    """So the planted secrets are real ones."""
    result = run_factory(planted["folder"], LOOK.format(**planted), Level.NONE)
    found = json.loads(msgspec.json.decode(result.frames[0][1], type=Failure).message)
    assert found["files of home"]
    assert found["environments of processes"] > 0
    assert (found["agent"], found["neighbour"]) == ("connected", "connected")


FORGING = """
import os
ELF = bytes.fromhex("{elf}")

def frame(name, blob):
    header = b'{{"name":"%s","size":%d}}' % (name, len(blob))
    return b"TGF1" + len(header).to_bytes(2, "big") + header + blob

def look(M, N, T):
    stream = b"".join(frame(*one) for one in {frames})
    for number in range(3, 64):
        try:
            os.write(number, stream)
        except OSError:
            pass
    os._exit(0)
"""


@pytest.mark.compiler
@pytest.mark.parametrize(
    "frames",
    [
        '[(b"library", ELF), (b"end", b"")]',
        '[(b"elaboration", ELF), (b"ir", ELF), (b"end", b"")]',
        '[(b"ir", ELF), (b"library", ELF), (b"end", b"")]',
    ],
)
def test_a_library_that_a_factory_forges_never_becomes_the_artifact(tmp_path, frames):
    """It writes a real one into every descriptor that it has, as the compile job would."""
    contract = world.contract_of({"x": ("n",)}, {"y": ("n",)})
    elf = world.artifact(world.elaboration_of(contract), world.SCALE, "FACTOR=2")[1]
    (tmp_path / "kernels.py").write_text(FORGING.format(elf=elf.hex(), frames=frames))
    closure, sources = closure_of(tmp_path, bound("kernels:look"))
    asked = [jobs.Asked(closure, SCALED, one) for one in expand(closure.binding, SCALED)]
    (made,) = jobs.elaborate(asked, sources)
    assert isinstance(made, CompilerTrace)
    assert made.template == "job-protocol"
