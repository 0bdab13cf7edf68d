"""Limits for all processes of a sandbox together, by the kernel, where it lets us: a bomb too quick to be counted."""

import os
from pathlib import Path

import pytest

from tests.test_sandbox import POLICY, job
from tilegate.sandbox import Ending, Level, cgroup, run, run_job

UNIFIED = "0::/user.slice/build.service/supervisor\n"


def grown(root, path, *, controllers="cpu memory pids"):
    folder = root / path
    folder.mkdir(parents=True)
    (root / "cgroup.controllers").touch()
    (folder / "cgroup.subtree_control").write_text(controllers)
    return folder


def test_a_group_that_passes_both_controllers_on_is_used(tmp_path):
    service = grown(tmp_path, "user.slice/build.service")
    (service / "supervisor").mkdir()
    assert cgroup.delegated(UNIFIED, tmp_path) == (service,)


@pytest.mark.parametrize("controllers", ["", "memory", "cpu pids"])
def test_a_group_without_both_controllers_is_not_delegated(tmp_path, controllers):
    grown(tmp_path, "user.slice/build.service", controllers=controllers)
    assert cgroup.delegated(UNIFIED, tmp_path) == ()


def test_nothing_above_the_mount_is_ever_taken(tmp_path):
    (tmp_path / "cgroup.subtree_control").write_text("memory pids")
    mount = tmp_path / "mount"
    mount.mkdir()
    (mount / "cgroup.controllers").touch()
    assert cgroup.delegated("0::/\n", mount) == ()


def test_version_1_takes_both_hierarchies_or_none(tmp_path):
    lines = "8:pids:/a\n4:memory:/b\n1:cpu:/\n"
    (tmp_path / "pids/a").mkdir(parents=True)
    assert cgroup.delegated(lines, tmp_path) == ()
    (tmp_path / "memory/b").mkdir(parents=True)
    assert cgroup.delegated(lines, tmp_path) == (tmp_path / "pids/a", tmp_path / "memory/b")


def test_where_no_group_can_be_made_there_is_none_and_nothing_is_left(tmp_path, monkeypatch):
    service = grown(tmp_path, "user.slice/build.service")
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    (tmp_path / "membership").write_text(UNIFIED)
    monkeypatch.setattr(cgroup, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(cgroup, "_bound", fails)
    with cgroup.group(memory_bytes=1 << 30, processes=8) as made:
        assert made is None
    assert [one.name for one in service.iterdir()] == ["cgroup.subtree_control"]


def fails(*_):
    raise OSError


@pytest.fixture
def delegated():
    if not cgroup.delegated(cgroup.MEMBERSHIP.read_text(), cgroup.ROOT):
        pytest.skip("no group is delegated to this process here")
    return cgroup.delegated(cgroup.MEMBERSHIP.read_text(), cgroup.ROOT)


@pytest.mark.parametrize("level", [Level.FULL, Level.REDUCED])
def test_a_bomb_between_two_looks_is_stopped_by_the_kernel(delegated, level, monkeypatch):
    """1.2 GiB in four processes, where the parent never looks; the group holds 520 MiB."""
    monkeypatch.setattr(run, "LOOK_S", 3600.0)
    policy = POLICY.at(level).within(job_bytes=512 << 20)
    result = run_job(job("fill_memory_at_once"), policy)
    assert result.isolation.cgroup
    assert result.ending is Ending.MEMORY
    left = [one for base in delegated for one in base.glob(f"tilegate-{os.getpid()}-*")]
    assert left == []


def test_a_fork_bomb_is_stopped_by_the_kernel(delegated):
    result = run_job(job("fork_forever"), POLICY.at(Level.FULL).within(processes=16, silence_s=5.0))
    assert result.isolation.cgroup
    assert b"Resource temporarily unavailable" in result.output
    assert delegated


def test_without_delegation_the_isolation_says_so(monkeypatch):
    monkeypatch.setattr(cgroup, "MEMBERSHIP", Path("/dev/null"))
    assert not run_job(job("greet", {"name": b""}), POLICY.at(Level.REDUCED)).isolation.cgroup
