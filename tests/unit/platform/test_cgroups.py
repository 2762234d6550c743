"""Where the counters of a process's control groups are, in all the ways in which these are mounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.platform.cgroups import OomWatch

V2 = "31 23 0:28 {root} {at} rw - cgroup2 cgroup2 rw"
V1 = "35 31 0:32 {root} {at} rw - cgroup cgroup rw,memory"
OTHER = "32 31 0:29 / {at}/cpu rw - cgroup cgroup rw,cpu"


class Machine:
    """A /proc and control groups in a directory."""

    def __init__(self, home: Path, mounts: str, groups: str) -> None:
        self.home = home
        self.proc = home / "proc"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "mountinfo").write_text(f"1 1 0:1 / / rw - ext4 disk rw\n{mounts}\n")
        self.move(groups)
        self.count("proc/vmstat", 5)

    def move(self, groups: str) -> None:
        (self.proc / "42").mkdir(exist_ok=True)
        (self.proc / "42" / "cgroup").write_text(f"{groups}\n")

    def count(self, file: str, number: int) -> None:
        (self.home / file).parent.mkdir(parents=True, exist_ok=True)
        (self.home / file).write_text(f"low 0\noom 1\noom_kill {number}\n")


@pytest.mark.parametrize(
    ("mounts", "groups", "file"),
    [
        (V2.format(root="/", at="{home}/cg"), "0::/job/step", "cg/job/step/memory.events"),
        (V2.format(root="/docker/x", at="{home}/cg"), "0::/docker/x/job", "cg/job/memory.events"),
        (V1.format(root="/", at="{home}/cg/memory"), "4:memory:/job", "cg/memory/job/memory.oom_control"),
        (V1.format(root="/docker/x", at="{home}/m"), "4:cpu,memory:/docker/x", "m/memory.oom_control"),
        (
            "\n".join(
                [OTHER.format(at="{home}"), V2.format(root="/", at="{home}/u"), V1.format(root="/", at="{home}/m")]
            ),
            "4:memory:/job\n2:cpu:/other\n0::/",
            "m/job/memory.oom_control",
        ),
    ],
)
def test_the_counter_of_the_group_that_the_process_is_in(mounts: str, groups: str, file: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, mounts.format(home=tmp_path), groups)
    machine.count(file, 3)
    watch = OomWatch(machine.proc)
    watch.look(42)
    machine.count("proc/vmstat", 9)  # somebody else's
    assert not watch.take_verdict(42)
    watch.look(42)
    machine.count(file, 4)
    assert watch.take_verdict(42)


def test_a_process_that_is_moved_is_judged_by_both_groups(tmp_path: Path) -> None:
    machine = Machine(tmp_path, V2.format(root="/", at=f"{tmp_path}/cg"), "0::/first")
    for group in ("first", "second"):
        machine.count(f"cg/{group}/memory.events", 1)
    watch = OomWatch(machine.proc)
    watch.look(42)
    machine.move("0::/second")
    watch.look(42)
    machine.count("cg/second/memory.events", 2)
    assert watch.take_verdict(42)


def test_without_a_counter_of_its_own_the_machine_is_asked(tmp_path: Path) -> None:
    machine = Machine(tmp_path, V2.format(root="/", at=f"{tmp_path}/cg"), "0::/")
    watch = OomWatch(machine.proc)
    watch.look(42)
    machine.count("proc/vmstat", 6)
    assert watch.take_verdict(42)


def test_where_the_system_says_nothing_nobody_was_killed(tmp_path: Path) -> None:
    watch = OomWatch(tmp_path)
    watch.look(42)
    assert not watch.take_verdict(42)
