"""What was around a round is read from the system, and a round is left out by the rule alone. One run at a time on a device."""

import os
import subprocess
import sys

import pytest
from support.runs import QUIET

from lanewise.bench import around
from lanewise.bench.around import RULE, ancestors, left_out, look, trimmed
from lanewise.bench.lock import held
from lanewise.errors import EvidenceError

BEFORE = {**QUIET, "clock_mhz": 3000.0, "throttle": {"core": 3}, "neighbours": [{"pid": 7, "parent": 1, "name": "x", "cpu_seconds": 5.0}]}


def after(**changes):
    return {**BEFORE, "time": 2.0, **changes}


def process(pid, seconds, parent=1):
    return {"pid": pid, "parent": parent, "name": "x", "cpu_seconds": seconds}


def plant(proc, pid, name, ticks, parent=1):
    """A /proc/PID/stat with (utime, stime, cutime, cstime)."""
    (proc / str(pid)).mkdir(parents=True)
    fields = ["S", str(parent), *["0"] * 9, *map(str, ticks), *["0"] * 30]
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


@pytest.mark.parametrize(
    ("rule", "changes", "words"),
    [
        ({}, {}, None),
        ({"busy": 0.125}, {"neighbours": [process(7, 5.25)]}, None),  # 0.25 s of 2 s: the limit itself
        ({}, {"neighbours": [process(7, 5.25)]}, "others used 0.12 of a core"),
        ({}, {"neighbours": [process(7, 5.0), process(8, 1.0)]}, "others used 0.50 of a core"),
        ({}, {"neighbours": []}, None),
        ({}, {"neighbours": [process(7, 0.1), process(8, 1.0)]}, "others used 0.50 of a core"),  # another process got the number 7
        ({}, {"ticks": {"user": 900, "steal": 100}}, "others used 0.50 of a core"),
        ({"busy": None}, {"neighbours": [process(7, 9.0)]}, None),
        ({}, {"throttle": {"core": 3}}, None),
        ({}, {"throttle": {"core": 4}}, "throttled: core"),
        ({}, {"throttle": {"core": 3, "package": 2}}, "throttled: package"),
        ({}, {"throttle": None}, None),
        ({"throttled": False}, {"throttle": {"core": 4}}, None),
        ({}, {"clock_mhz": 1000.0}, None),
        ({"clock": 0.25}, {"clock_mhz": 2250.0}, None),
        ({"clock": 0.1}, {"clock_mhz": 2600.0}, "the clock fell by 13 %"),
        ({"clock": 0.1}, {"clock_mhz": None}, None),
        ({}, {"neighbours": None, "ticks": None}, None),
    ],
)
def test_a_round_is_left_out_by_the_rule_and_what_was_around_it(rule, changes, words):
    assert left_out({**RULE, **rule}, BEFORE, after(**changes)) == words


def test_processes_that_used_no_time_are_not_kept_and_change_nothing():
    one = {**BEFORE, "neighbours": [process(3, 9.0), process(7, 5.0), process(9, 2.0)]}
    other = after(neighbours=[process(3, 9.0), process(7, 6.0), process(11, 0.5)])
    short = trimmed(one, other)
    assert [[p["pid"] for p in side["neighbours"]] for side in short] == [[7, 9], [7, 11]]
    assert left_out(RULE, *short) == left_out(RULE, one, other) == "others used 0.75 of a core"
    assert trimmed({**one, "neighbours": None}, other)[1] == other


def test_of_what_ended_only_the_new_time_counts_which_its_parent_inherits():
    """30 seconds of a compiler that ended, of which the last one is new; its own parent, a shell, ended too."""
    one = {**BEFORE, "neighbours": [process(5, 3.0), process(6, 0.5, parent=5), process(7, 29.0, parent=6)]}
    assert left_out(RULE, one, after(neighbours=[process(5, 33.5)])) == "others used 0.50 of a core"
    assert left_out(RULE, one, after(neighbours=[process(5, 3.0)])) is None
    ring = {**BEFORE, "neighbours": [process(6, 1.0, parent=7), process(7, 1.0, parent=6)]}
    assert left_out(RULE, ring, after(neighbours=[])) is None


def test_processes_are_read_with_their_ended_children_and_without_this_one(tmp_path):
    (tmp_path / "stat").write_text("cpu 1 2 3\n")
    plant(tmp_path, 12, "a (strange) name", (100, 50, 25, 25))
    plant(tmp_path, 13, "idle", (0, 0, 0, 0))
    plant(tmp_path, os.getpid(), "me", (900, 0, 0, 0))
    (tmp_path / "14").mkdir()  # gone between the listing and the look
    assert look(proc=tmp_path)["neighbours"] == [{"pid": 12, "parent": 1, "name": "a process", "cpu_seconds": 2.0}]


def test_only_threads_of_the_kernel_are_named(tmp_path):
    (tmp_path / "stat").write_text("cpu 1 2 3\n")
    plant(tmp_path, 12, "a (strange) name", (100, 50, 25, 25), parent=2)
    plant(tmp_path, 13, "secret", (100, 50, 25, 25))
    assert [one["name"] for one in look(proc=tmp_path)["neighbours"]] == ["a (strange) name", "a process"]


def test_a_machine_that_says_nothing_is_taken_at_its_word(tmp_path):
    found = look(proc=tmp_path, cpus=tmp_path, zones=tmp_path)
    assert [found[name] for name in ("neighbours", "clock_mhz", "temperature", "throttle", "power")] == [None] * 5
    assert left_out(RULE, found, {**found, "time": found["time"] + 1}) is None


def test_clocks_heat_and_throttling_are_read_where_they_are(tmp_path):
    for number, (clock, throttled) in enumerate(((2_000_000, 3), (3_000_000, 4))):
        for name, value in (("cpufreq/scaling_cur_freq", clock), ("thermal_throttle/core_throttle_count", throttled)):
            path = tmp_path / f"cpu{number}" / name
            path.parent.mkdir(parents=True)
            path.write_text(f"{value}\n")
    (tmp_path / "thermal_zone0").mkdir()
    (tmp_path / "thermal_zone0" / "temp").write_text("45500\n")
    found = look(cpus=tmp_path, zones=tmp_path)
    assert (found["clock_mhz"], found["temperature"], found["throttle"]) == (2500.0, 45.5, {"core": 7})


def test_this_machine_is_looked_at_as_the_manifest_has_it():
    found = look()
    assert set(found) == set(QUIET)
    assert found["peak_memory"] > 1 << 20
    assert left_out(RULE, found, found) is None  # no time has passed


def test_ancestors_lead_from_the_parent_upwards(tmp_path):
    plant(tmp_path, 30, "child", (1, 0, 0, 0), parent=20)
    plant(tmp_path, 20, "sh", (1, 0, 0, 0), parent=10)
    assert ancestors(30, tmp_path) == (20, 10)
    assert os.getppid() in ancestors(os.getpid())


def test_a_second_measurement_on_a_device_is_refused_and_says_who_holds_it():
    with held("cpu"):
        with pytest.raises(EvidenceError, match=f"process {os.getpid()} is measuring on device cpu"), held("cpu"):
            pass
        with held("cuda:0"):
            pass
    with held("cpu"):
        pass


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path):
    """The holder is another process, as a run on another terminal is."""
    script = "import fcntl, sys\nf = open(sys.argv[1], 'w')\nfcntl.flock(f, fcntl.LOCK_EX)\nprint(flush=True)\nsys.stdin.read()"
    (tmp_path / "locks").mkdir()
    path = tmp_path / "locks" / "cpu.lock"
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        with pytest.raises(EvidenceError, match="another process is measuring"), held("cpu"):
            pass
        holder.kill()
    with held("cpu"):
        assert path.read_text() == f"{os.getpid()}\n"


def test_what_a_measurement_starts_may_measure(monkeypatch):
    """As a command of an A/B run that is itself a benchmark."""
    with held("cpu"):
        monkeypatch.setattr("lanewise.bench.lock.ancestors", lambda pid: (os.getpid(), 1))
        with held("cpu"):
            pass


def test_ticks_are_hundredths_of_a_second():
    assert os.sysconf("SC_CLK_TCK") == around._TICKS
