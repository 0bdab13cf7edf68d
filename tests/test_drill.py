"""The drill of the sandbox: nothing deviates on this machine, and it would be told if something did."""

from __future__ import annotations

import functools
import importlib
import inspect
import io
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tilegate.cli import commands
from tilegate.drill import sandbox as drill
from tilegate.drill.expected import PROBES
from tilegate.drill.probe import LEVELS, Expected, Facts, Probe, Situation, blocked, escapes, judge
from tilegate.drill.probes import attack_of, module_of
from tilegate.drill.stage import staged
from tilegate.errors import SandboxError, UsageError
from tilegate.records.canonical import decode, encode
from tilegate.records.drill import Claim, DrillReport, Outcome, Said, Theme
from tilegate.records.isolation import Level
from tilegate.report.terminal import render
from tilegate.sandbox import Ending, bubblewrap

NOBODY = {"user": 65534, "group": 65534, "extra_groups": []}
LEAST = 51
"""What the suite that this one grew out of had blocked."""

SITUATIONS = [
    Situation(root=root, landlock=abi, cgroup=cgroup)
    for root in (True, False)
    for abi in (0, 1, 5, 6, 7)
    for cgroup in (True, False)
]
NAMED = {probe.name: probe for probe in PROBES}
QUICK = [probe.name for probe in PROBES if not (probe.alone or probe.ends or probe.limits)]
"""Those that can share a sandbox."""
CONTROLS = [
    "environment",
    "secret-file",
    "private-file",
    "environments-of-processes",
    "agent",
    "unix-path",
    "unix-abstract",
    "tcp",
    "udp",
    "write-outside",
    "poison-package",
    "plant-pth",
    "set-uid-by-openat2",
    "shared-memory-file",
    "kill-canary",
    "stop-canary",
    "signal-drill",
    "memory-of-canary",
    "ptrace-canary",
    "steal-descriptor",
    "survivor",
    "shared-segment",
    "key-ring",
    "write-to-terminal",
    "removal-follows-link",
    "exit-code",
    "forged-word",
    "pickle-as-result",
    "library-as-result",
]
"""Attacks that work where nothing is in the way, one for each thing that the host looks at; and some that never do."""

CANNOT = "cannot be isolated as asked"


def drilled(level, *names):
    """The report of a drill on this machine, with this user."""
    try:
        return drill.drill_sandbox(level, names)
    except SandboxError as error:
        if CANNOT not in str(error):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def readable_python():
    """An interpreter that another user may run, with everything that this one has."""
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if os.getuid() != 0:
        pytest.skip("not root: the other tests run as an ordinary user already")
    if not Path(system).exists():
        pytest.skip("no interpreter that another user may read")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        subprocess.run([system, "-m", "venv", "--without-pip", folder], check=True)
        packages = next(Path(folder, "lib").glob("python*/site-packages"))
        paths = [path for path in sys.path if path.endswith(("site-packages", "src"))]
        (packages / "more.pth").write_text("\n".join([str(Path(__file__).parents[1] / "src"), *paths]))
        yield Path(folder, "bin", "python")


def drilled_as_nobody(python, level, *names):
    """The same, from a user without any rights."""
    command = [python, "-m", "tilegate", "drill", "sandbox", "--json", "--isolation", level.value, *names]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False, cwd="/", **NOBODY)
    told = done.stderr.decode()
    if done.returncode == 3 and CANNOT in told:
        pytest.skip(told)
    assert done.returncode in (0, 1), told
    return decode(DrillReport, done.stdout.strip(), where="stdout")


def assert_holds(report, *, least=0):
    wrong = [
        f"{line.probe}: {line.outcome.value}, {line.detail}" for line in report.lines if not line.as_expected
    ]
    assert wrong == []
    assert report.accepted
    assert sum(line.outcome is Outcome.BLOCKED for line in report.lines) >= least


def run(*words):
    return CliRunner().invoke(commands, ["drill", "sandbox", *words], catch_exceptions=False)


# On this machine.


def test_nothing_breaks_out_of_full():
    report = drilled(Level.FULL)
    assert_holds(report, least=LEAST)
    assert [line.probe for line in report.lines] == [probe.name for probe in PROBES]


def test_nothing_breaks_out_of_full_for_an_ordinary_user(readable_python):
    assert_holds(
        drilled_as_nobody(readable_python, Level.FULL, *QUICK, "survivor", "kill-trusted", "memory-of-many"),
        least=LEAST,
    )


def test_what_reduced_promises_holds():
    assert_holds(drilled(Level.REDUCED, *QUICK, "survivor", "kill-trusted"), least=LEAST)


def test_what_reduced_promises_holds_for_an_ordinary_user(readable_python):
    assert_holds(
        drilled_as_nobody(readable_python, Level.REDUCED, *QUICK, "survivor", "kill-trusted"), least=LEAST
    )


def test_the_attacks_work_where_nothing_is_in_the_way():
    report = drilled(Level.NONE, *CONTROLS)
    assert_holds(report)
    escaped = {line.probe for line in report.lines if line.outcome is Outcome.ESCAPED}
    never = {name for name in CONTROLS if NAMED[name].none.outcomes == (Outcome.BLOCKED,)}
    lacking = {line.probe for line in report.lines if line.outcome is Outcome.NOT_APPLICABLE}
    assert escaped == set(CONTROLS) - never - lacking
    assert len(lacking) < len(CONTROLS) // 4


@pytest.mark.long
@pytest.mark.parametrize("level", [Level.REDUCED, Level.NONE])
def test_every_probe_does_what_is_expected(level):
    assert_holds(drilled(level))


@pytest.mark.long
@pytest.mark.parametrize("level", LEVELS)
def test_every_probe_does_what_is_expected_for_an_ordinary_user(readable_python, level):
    assert_holds(drilled_as_nobody(readable_python, level), least=0 if level is Level.NONE else LEAST)


# It bites.


@pytest.fixture
def with_probes(monkeypatch):
    """The command, with other probes."""

    def change(*probes):
        changed = functools.partial(drill.drill_sandbox, probes=probes)
        monkeypatch.setattr(importlib.import_module("tilegate.cli.drill"), "drill_sandbox", changed)

    return change


def test_a_wrong_expectation_is_a_deviation(with_probes):
    right = NAMED["environment"]
    with_probes(right, replace(NAMED["secret-file"], none=blocked("it is hoped")))
    result = run("--isolation", "none")
    assert result.exit_code == 1, result.output
    assert "secret-file: escaped, expected blocked" in result.output
    assert "expected  because it is hoped" in result.output
    assert "next: tilegate drill sandbox --isolation none secret-file" in result.output
    with_probes(right)
    assert run("--isolation", "none").exit_code == 0


def test_an_escape_that_was_expected_and_did_not_happen_is_a_deviation(with_probes):
    with_probes(replace(NAMED["environment"], none=escapes("it is feared")))
    assert run("--isolation", "none").exit_code == 1


def test_a_probe_that_cannot_run_is_never_blocked(with_probes):
    missing = Probe("no-such-attack", Theme.FILES, "nothing", blocked(""), blocked(""), blocked(""))
    with_probes(missing, NAMED["environment"])
    result = run("--isolation", "none", "--json")
    assert result.exit_code == 1
    report = decode(DrillReport, result.stdout.strip().encode(), where="stdout")
    assert [line.outcome for line in report.lines] == [Outcome.INCONCLUSIVE, Outcome.BLOCKED]


def test_a_level_that_cannot_be_had_is_no_result(monkeypatch):
    monkeypatch.setattr(bubblewrap, "PROGRAMS", ("/nonexistent/bwrap",))
    result = run("--isolation", "full", "--json")
    assert result.exit_code == 3, result.output
    assert result.stdout == ""


def test_an_unknown_probe_is_refused_before_any_is_made():
    with pytest.raises(UsageError) as caught:
        drill.drill_sandbox(Level.NONE, ["secret-fil"])
    assert "secret-file" in caught.value.next_step


# The judgement.

claims = st.builds(Claim, said=st.sampled_from(Said), detail=st.text(max_size=8))
endings = st.sampled_from(Ending)
facts = st.builds(
    Facts,
    traces=st.lists(st.sampled_from(["changed secret.txt", "was heard on TCP"]), max_size=2),
    ending=endings,
    claim=st.none() | claims,
)
some_probe = st.sampled_from(PROBES)


@given(probe=some_probe, seen=facts)
def test_a_trace_outweighs_every_word(probe, seen):
    """A trace on the host is an escape, whatever the job says."""
    outcome, _ = judge(probe, replace(seen, traces=["changed secret.txt"]))
    assert outcome is Outcome.ESCAPED


@given(probe=some_probe, seen=facts)
def test_nothing_is_blocked_without_a_reason_to_say_so(probe, seen):
    """Blocked are: a limit that ended it as it should, a refusal, and an attempt of which the host sees nothing."""
    outcome, _ = judge(probe, seen)
    if outcome is Outcome.BLOCKED:
        assert not seen.traces
        assert seen.ending in probe.ends or (seen.claim and seen.claim.said in (Said.REFUSED, Said.TRIED))


@given(probe=some_probe, ending=endings)
def test_a_job_that_says_nothing_proves_nothing(probe, ending):
    """Without a claim, only an ending that the probe is about is blocked."""
    outcome, _ = judge(probe, Facts(traces=[], ending=ending, claim=None))
    assert (outcome is Outcome.BLOCKED) == (ending in probe.ends)


# The expectations.


@pytest.mark.parametrize("situation", SITUATIONS, ids=str)
def test_full_leaves_nothing_to_the_machine(situation):
    outcomes = [probe.expected(Level.FULL, situation).outcomes for probe in PROBES]
    assert {len(outcome) for outcome in outcomes} == {1}
    assert outcomes.count((Outcome.BLOCKED,)) >= LEAST


@pytest.mark.parametrize("situation", SITUATIONS, ids=str)
def test_no_weaker_level_promises_more(situation):
    for probe in PROBES:
        always = [
            probe.expected(level, situation).outcomes == (Outcome.BLOCKED,) for level in reversed(LEVELS)
        ]
        assert always == sorted(always), probe.name


def test_every_attack_is_expected_and_every_expectation_has_an_attack():
    assert len(NAMED) == len(PROBES)
    for theme in Theme:
        module = importlib.import_module(module_of(theme.value))
        attacks = {
            name.replace("_", "-")
            for name, one in inspect.getmembers(module, inspect.isfunction)
            if one.__module__ == module.__name__ and not name.startswith("_")
        }
        assert attacks == {probe.name for probe in PROBES if probe.theme is theme}
    for probe in PROBES:
        assert callable(attack_of(probe.theme.value, probe.name))


@pytest.mark.parametrize("probe", [p for p in PROBES if p.theme is Theme.RESOURCES], ids=lambda p: p.name)
def test_every_bomb_says_its_bound(probe):
    if probe.name == "stop-itself":
        return
    assert any(character.isdigit() for character in probe.tries)


def test_nothing_that_could_harm_the_machine_is_made_without_a_sandbox():
    harmful = [
        "reboot",
        "swap",
        "module-loading",
        "clock",
        "core-pattern",
        "signal-everyone",
        "kernel-settings",
        "magic-keys",
        "another-kernel",
        "unmount",
        "remount",
        "control-groups",
        "device-settings",
        "poison-closure",
    ]
    for name in harmful:
        assert NAMED[name].none.outcomes == (Outcome.NOT_APPLICABLE,), name


def test_an_expectation_depends_on_the_caller_and_the_kernel():
    old, user, group = escapes("old kernel"), escapes("an ordinary user"), blocked("a group")
    expected = Expected((Outcome.BLOCKED,), "root", user=user, before=(6, old), grouped=group)
    assert expected.here(Situation(root=True, landlock=6, cgroup=False)) is expected
    assert expected.here(Situation(root=False, landlock=7, cgroup=False)) is user
    assert expected.here(Situation(root=True, landlock=5, cgroup=False)) is old
    assert expected.here(Situation(root=False, landlock=5, cgroup=True)) is group


# It leaves nothing behind.


def test_the_stage_goes_whatever_happens():
    before = dict(os.environ), tempfile.tempdir
    found = []

    def breaks():
        with staged(Level.NONE) as stage:
            found.append(stage.props())
            assert Path(found[0].secret).exists()
            assert Path(f"/proc/{found[0].canary.pid}").exists()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        breaks()
    props = found[0]
    assert not Path(props.folder).exists()
    assert not Path(f"/proc/{props.canary.pid}").exists()
    assert not Path(f"/dev/shm/{props.name}-canary").exists()
    assert (dict(os.environ), tempfile.tempdir) == before


def test_what_is_planted_is_seen_when_it_changes_and_made_good():
    with staged(Level.NONE) as stage:
        assert stage.traces() == []
        props = stage.props()
        Path(props.package, "__init__.py").write_text("EVIL = True\n")
        Path(props.open_folder, "new").touch()
        os.kill(props.canary.pid, 9)
        os.waitid(os.P_PID, props.canary.pid, os.WEXITED | os.WNOWAIT)
        assert stage.traces() == [
            "changed open/new",
            "changed toolchain/tilegate_drill_canary/__init__.py",
            "the canary was killed",
        ]
        assert stage.props().canary.pid != props.canary.pid
        assert stage.traces() == []


# What is told.


def test_the_report_is_a_record_and_a_table():
    report = drilled(Level.NONE, "environment", "machine-name")
    assert decode(DrillReport, encode(report), where="here") == report
    console = Console(width=200, file=io.StringIO())
    for part in render(report):
        console.print(part)
    text = console.file.getvalue()
    assert "2 probes: 1 blocked, 1 escaped" in text
    assert "all as expected" in text


def test_the_readme_counts_the_probes():
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    assert f"tries {len(PROBES)} ways out" in readme
