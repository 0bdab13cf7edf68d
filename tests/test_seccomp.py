"""Which system calls a job can make: what the filter says in bytes, and what the kernel then does."""

import errno
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilegate
from tilegate.errors import SandboxError
from tilegate.sandbox import bpf, seccomp
from tilegate.sandbox.permitted import ALLOWED, DRIVER, FILTERED, MEMORY_FILES, REFUSED
from tilegate.sandbox.syscalls import NUMBERS

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
WORD = 0xFFFF_FFFF
KILLED = 0x80000000


def names(text):
    return set(text.split())


NEVER = names("""
    socket socketpair connect bind listen accept accept4 setsockopt recvmmsg sendmmsg
    ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd keyctl add_key request_key
    io_uring_setup io_uring_enter io_uring_register io_setup io_submit perf_event_open bpf userfaultfd seccomp
    mount umount2 mount_setattr move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick pivot_root
    chroot unshare setns init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff
    shmget shmat shmctl semget semop semctl msgget msgsnd msgrcv mq_open open_by_handle_at name_to_handle_at
    mknod mknodat acct quotactl quotactl_fd fanotify_init fanotify_mark inotify_init1 inotify_add_watch syslog
    setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset
    chown fchown lchown fchownat link linkat symlink symlinkat utime utimes futimesat
    sethostname setdomainname settimeofday clock_settime adjtimex clock_adjtime iopl ioperm modify_ldt
    rt_sigqueueinfo rt_tgsigqueueinfo migrate_pages move_pages sched_setattr sched_setscheduler setpriority
    vhangup lookup_dcookie nfsservctl uselib remap_file_pages vmsplice tee memfd_secret
""")


# The filter as bytes, run here


def interpret(program, number, architecture, arguments):
    """What the kernel's interpreter makes of a program, for the few instructions that there are."""
    data = struct.pack("<II7Q", number, architecture, 0, *arguments)
    code = list(struct.iter_unpack("<HBBI", program))
    word = at = 0
    while True:
        operation, yes, no, value = code[at]
        at += 1
        if operation == 0x20:
            (word,) = struct.unpack_from("<I", data, value)
        elif operation == 0x54:
            word &= value
        elif operation == 0x05:
            at += value
        elif operation == 0x15:
            at += yes if word == value else no
        elif operation == 0x35:
            at += yes if word >= value else no
        else:
            assert operation == 0x06
            return value


CHECKS = [check for rule in FILTERED.values() for row in rule.any_of for check in row]
TELLING = sorted({value for check in CHECKS for value in check.values})
BITS = st.integers(0, 63).map(lambda n: 1 << n)
ARGUMENT = st.one_of(
    st.sampled_from(TELLING),
    st.tuples(st.sampled_from(TELLING), BITS).map(lambda pair: pair[0] ^ pair[1]),
    st.sampled_from([0, WORD, 0xFFFF_FFFF_FFFF_FFFF, 0o644, 0o4755, 0o2000, 0o100, 0x1_0000_0000]),
    st.integers(0, 0xFFFF_FFFF_FFFF_FFFF),
)
ARGUMENTS = st.lists(ARGUMENT, min_size=6, max_size=6)


@pytest.mark.parametrize("more", [(), tuple({**DRIVER, **MEMORY_FILES}.items())], ids=["all", "some"])
@pytest.mark.parametrize("machine", NUMBERS)
@settings(max_examples=60, deadline=None)
@given(arguments=ARGUMENTS)
def test_the_bytes_decide_as_the_policy_does(machine, more, arguments):
    """interpret(program, number, arguments) == decide(number, arguments), for every number and all arguments."""
    program = seccomp.program(machine, more)
    for number in (*range(600), 0x3FFF_FFFF, 0x4000_0000, 0x4000_0027, 0x8000_0000, WORD):
        got = interpret(program, number, ARCHITECTURES[machine], arguments)
        assert got == seccomp.decide(machine, number, arguments, more), number


@pytest.mark.parametrize("machine", NUMBERS)
@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(FILTERED)), arguments=ARGUMENTS)
def test_the_bytes_decide_as_each_rule_does(machine, name, arguments):
    """As above, where it matters most: a call whose arguments are looked at."""
    if (number := NUMBERS[machine].get(name)) is not None:
        got = interpret(seccomp.program(machine), number, ARCHITECTURES[machine], arguments)
        assert got == seccomp.decide(machine, number, arguments)


@pytest.mark.parametrize("machine", NUMBERS)
def test_numbers_of_another_architecture_are_never_read_as_our_own(machine):
    for architecture in (0x40000003, 0x40000028, 0xC000003E, 0xC00000B7):  # i386, arm, x86-64, aarch64
        if architecture != ARCHITECTURES[machine]:
            for number in range(470):
                assert interpret(seccomp.program(machine), number, architecture, [0] * 6) == KILLED


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), length=st.integers(0, 900), number=st.integers(0, 40))
def test_a_far_jump_lands_where_it_was_sent(seed, length, number):
    """A program of branches to places anywhere behind them ends where a walk over the branches does."""
    random = Random(seed)
    branches = [
        (random.random() < 0.5, random.randrange(40), random.random(), random.random()) for _ in range(length)
    ]
    asm = bpf.Assembler()
    labels = [asm.answer(1000 + n) for n in range(4)]
    for equal, value, yes, no in branches:
        branch = asm.equal if equal else asm.at_least
        labels.append(branch(value, labels[int(yes * len(labels))], labels[int(no * len(labels))]))
    program = asm.program(asm.load(bpf.NUMBER, labels[-1]))

    at = len(labels) - 1
    while at >= 4:
        equal, value, yes, no = branches[at - 4]
        at = int((yes if (number == value if equal else number >= value) else no) * at)
    assert interpret(program, number, 0, [0] * 6) == 1000 + at


def test_a_program_that_the_kernel_would_not_take_is_not_made():
    asm = bpf.Assembler()
    for _ in range(bpf.LONGEST + 1):
        last = asm.answer(0)
    with pytest.raises(ValueError):
        asm.program(last)


def test_an_unknown_machine_gets_no_filter_that_would_not_fit():
    with pytest.raises(SandboxError):
        seccomp.program("riscv64")
    with pytest.raises(SandboxError):
        seccomp.decide("x86_64, 32-bit", 0, [0] * 6)


# The policy as data


def test_no_name_is_misspelt_or_written_twice():
    known = set().union(*NUMBERS.values())
    named = [*ALLOWED, *FILTERED, *REFUSED]
    assert set(named) <= known
    assert set(NEVER) <= known
    assert len(named) == len(set(named))


@pytest.mark.parametrize("machine", NUMBERS)
def test_a_dangerous_call_never_gets_onto_the_list(machine):
    for name in set(NEVER) & set(NUMBERS[machine]):
        assert seccomp.decide(machine, NUMBERS[machine][name], [0] * 6) == 0x50000 | errno.EPERM, name


@pytest.mark.parametrize("machine", NUMBERS)
def test_a_newer_libc_sees_an_older_kernel_and_no_forbidden_call(machine):
    """Of a call with an older way round it, and of one that the tables do not know yet, EPERM would be the end."""
    for number in (
        *(NUMBERS[machine][name] for name in ("clone3", "openat2", "execveat")),
        470,
        500,
        0x3FFF_FFFF,
    ):
        assert seccomp.decide(machine, number, [0] * 6) == 0x50000 | errno.ENOSYS


HEADERS = {
    "x86_64": "#include <asm/unistd_64.h>",
    "aarch64": """
        #define __BITS_PER_LONG 64
        #define __ARCH_WANT_RENAMEAT
        #define __ARCH_WANT_NEW_STAT
        #define __ARCH_WANT_SET_GET_RLIMIT
        #define __ARCH_WANT_SYS_CLONE3
        #define __ARCH_WANT_MEMFD_SECRET
        #include <asm-generic/unistd.h>
    """,
}


@pytest.mark.parametrize("machine", NUMBERS)
def test_a_number_means_the_call_that_the_kernels_headers_say(machine):
    if shutil.which("gcc") is None or (machine == "x86_64" and os.uname().machine != machine):
        pytest.skip("needs gcc, and for x86-64 its own headers")
    numbers = NUMBERS[machine]
    asked = "".join(f"\n#ifdef __NR_{name}\n@{name} __NR_{name}\n#endif" for name in numbers)
    source = HEADERS[machine] + asked
    told = subprocess.run(["gcc", "-E", "-P", "-"], input=source, capture_output=True, text=True, check=False)
    if told.returncode:
        pytest.skip("the kernel's headers are not installed")
    found = dict(line[1:].split() for line in told.stdout.splitlines() if line.startswith("@"))
    assert len(found) > 290
    assert {name: int(number) for name, number in found.items()} == {name: numbers[name] for name in found}


# The filter in force

needs_seccomp = pytest.mark.skipif(not seccomp.available(), reason="this kernel has no seccomp filters")
needs_x86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="machine code of x86-64")

PRELUDE = f"""
import sys
sys.path.insert(0, {str(Path(tilegate.__file__).parents[1])!r})
import ctypes, errno, fcntl, mmap, os, signal, socket, subprocess, termios, threading
from tilegate.sandbox import landlock, permitted, seccomp
from tilegate.sandbox.syscalls import NUMBERS

libc = ctypes.CDLL(None, use_errno=True)

def answer(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ran"

def raw(name, *arguments):
    number = NUMBERS[os.uname().machine][name] if isinstance(name, str) else name
    words = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in (number, *arguments)]
    return errno.errorcode[ctypes.get_errno()] if libc.syscall(*words) == -1 else "ran"

def install(**more):
    seccomp.install(tuple(more.items()))
    assert libc.prctl(21, 0, 0, 0, 0) == 2  # PR_GET_SECCOMP: a filter. Nothing below is tried without
"""


def behind(code, folder, *, pass_fds=()):
    """Run code in a process of its own, and return the process with what it printed."""
    command = [sys.executable, "-I", "-B", "-c", PRELUDE + code]
    return subprocess.run(
        command, cwd=folder, pass_fds=pass_fds, capture_output=True, text=True, timeout=60, check=False
    )


def told(code, folder, **how):
    done = behind(code, folder, **how)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@needs_seccomp
def test_a_socket_cannot_be_created(tmp_path):
    code = """
install()
for family, kind in ((1, 1), (1, 2), (2, 1), (2, 2), (10, 1), (16, 3), (17, 3), (40, 1)):
    print(raw("socket", family, kind, 0), raw("socketpair", family, kind, 0, ctypes.create_string_buffer(8)))
"""
    assert set(told(code, tmp_path)) == {"EPERM"}


@needs_seccomp
def test_no_dangerous_call_reaches_the_kernel(tmp_path):
    tried = sorted(set(NEVER) & set(NUMBERS[os.uname().machine]) - {"vhangup"})
    code = f"""
install()
for name in {tried!r}:
    print(name, raw(name, *[(1 << 64) - 1] * 6), sep=":")
"""
    assert told(code, tmp_path) == [f"{name}:EPERM" for name in tried]


@needs_seccomp
def test_a_setuid_mode_is_refused_in_chmod_and_open(tmp_path):
    code = """
install()
there = os.open("there", os.O_CREAT | os.O_WRONLY, 0o644)
stray = 1 << 40
for mode in (0o4755, 0o2755, 0o6000):
    print(
        answer(os.chmod, "there", mode),
        answer(os.fchmod, there, mode),
        raw("fchmodat", -100 & (1 << 64) - 1, b"there", mode | stray),
        raw("fchmodat2", -100 & (1 << 64) - 1, b"there", mode, 0),
        answer(os.open, f"new{mode}", os.O_CREAT | os.O_WRONLY, mode),
        answer(os.open, ".", os.O_TMPFILE | os.O_WRONLY, mode),
        raw("openat", -100 & (1 << 64) - 1, b"new", os.O_CREAT | os.O_WRONLY | stray, mode | stray),
        answer(os.mkdir, f"folder{mode}", mode),
    )
"""
    assert set(told(code, tmp_path)) == {"EPERM"}
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there").stat().st_mode & 0o6000 == 0


@needs_seccomp
def test_ordinary_modes_and_files_are_not_in_its_way(tmp_path):
    code = """
install()
print(
    answer(os.close, os.open("a", os.O_CREAT | os.O_WRONLY, 0o755)),
    answer(os.chmod, "a", 0o700),
    answer(os.mkdir, "b", 0o1777),
    answer(os.replace, "a", "b/a"),
    raw("openat", -100 & (1 << 64) - 1, b"b/a", os.O_RDONLY, 0o4755),  # no file is made: the mode is noise
)
"""
    assert told(code, tmp_path) == ["ran"] * 5


@needs_seccomp
def test_nothing_can_be_typed_into_the_users_terminal(tmp_path):
    code = """
_, terminal = os.openpty()
install()
for stray in (0, 1 << 32, 1 << 63):
    print(raw("ioctl", terminal, termios.TIOCSTI | stray, b"x"), raw("ioctl", terminal, 0x541C | stray, b"x"))
print(os.isatty(terminal))
"""
    assert told(code, tmp_path) == ["ENOTTY"] * 6 + ["True"]


@needs_seccomp
def test_a_namespace_cannot_be_made_by_clone(tmp_path):
    code = """
install()
for flag in (0x80, 0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
    print(raw("clone", flag | signal.SIGCHLD, 0, 0, 0, 0))
print(raw("clone3", ctypes.create_string_buffer(88), 88))
"""
    assert told(code, tmp_path) == ["EPERM"] * 8 + ["ENOSYS"]


@needs_seccomp
def test_processes_and_threads_still_start_without_clone3(tmp_path):
    code = """
install()
thread = threading.Thread(target=print, args=("thread",))
thread.start()
thread.join()
print(subprocess.run(["true"]).returncode, flush=True)
os.waitpid(os.posix_spawnp("echo", ["echo", "spawned"], os.environ), 0)
forked = [os.fork() or os._exit(3) for _ in range(4)]
print(*(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in forked))
"""
    assert told(code, tmp_path) == ["thread", "0", "spawned", "3", "3", "3", "3"]


@needs_seccomp
def test_another_process_can_neither_be_limited_nor_pinned(tmp_path):
    code = """
install()
parent = os.getppid()
print(
    raw("prlimit64", parent, 7, None, ctypes.create_string_buffer(16)),
    raw("prlimit64", 0, 7, None, ctypes.create_string_buffer(16)),
    raw("sched_setaffinity", parent, 8, ctypes.create_string_buffer(b"\\xff" * 8)),
    raw("sched_setaffinity", 0, 8, ctypes.create_string_buffer(b"\\xff" * 8)),
)
"""
    assert told(code, tmp_path) == ["EPERM", "ran", "EPERM", "ran"]


@needs_seccomp
def test_a_process_that_hid_its_memory_cannot_be_made_to_show_it(tmp_path):
    code = """
install()
print(*(raw("prctl", 4, value, 0, 0, 0) for value in (0, 1, 2, 1 << 32)))
print(*(raw("prctl", 1, number, 0, 0, 0) for number in (9, 0)))  # the end with the parent
print(raw("prctl", 22, 2, 0), raw("prctl", 8, 1), raw("personality", 0x0040000), raw("personality", 0xFFFFFFFF))
"""
    assert told(code, tmp_path) == ["ran", *["EPERM"] * 3, "ran", "EPERM", *["EPERM"] * 3, "ran"]


@needs_seccomp
def test_no_signal_can_be_arranged_through_a_descriptor(tmp_path):
    code = """
reader, writer = os.pipe()
install()
for command in (fcntl.F_SETOWN, fcntl.F_SETSIG, fcntl.F_SETLEASE, fcntl.F_NOTIFY):
    print(answer(fcntl.fcntl, reader, command, 1))
print(answer(fcntl.fcntl, reader, fcntl.F_SETFL, os.O_NONBLOCK), answer(os.set_inheritable, reader, True))
"""
    assert told(code, tmp_path) == ["EPERM"] * 4 + ["ran", "ran"]


@needs_seccomp
def test_a_second_filter_cannot_lie_to_what_is_behind_the_first(tmp_path):
    code = """
install()
print(answer(seccomp.install), seccomp.available())
"""
    assert told(code, tmp_path) == ["EPERM", "False"]


@needs_seccomp
def test_a_thread_that_was_there_before_is_not_left_outside(tmp_path):
    code = """
go, found = threading.Event(), []
thread = threading.Thread(target=lambda: (go.wait(), found.append(answer(socket.socket))))
thread.start()
install()
go.set()
thread.join()
print(*found)
"""
    assert told(code, tmp_path) == ["EPERM"]


@needs_seccomp
@needs_x86
@pytest.mark.parametrize(
    "attempt",
    [
        # mov eax, 20; int 0x80; ret: getpid by the numbers of i386, where 20 is writev by ours
        'm = mmap.mmap(-1, 4096, prot=7); m.write(b"\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3"); '
        "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()",
        "libc.syscall(0x40000000 | 39)",  # getpid by the numbers of x32
    ],
    ids=["i386", "x32"],
)
def test_the_filter_cannot_be_passed_by_in_another_dialect(tmp_path, attempt):
    assert behind(f"install()\n{attempt}", tmp_path).returncode == -signal.SIGSYS


@needs_seccomp
def test_an_inherited_socket_still_carries_descriptors(tmp_path):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        code = f"""
install(**permitted.MEMORY_FILES)
peer = socket.socket(fileno={theirs.fileno()})
made = os.memfd_create("made", os.MFD_ALLOW_SEALING)
os.write(made, b"from inside")
fcntl.fcntl(made, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
_, (given, *_), _, _ = socket.recv_fds(peer, 10, 1)
print(os.pread(given, 100, 0).decode())
socket.send_fds(peer, [b"x"], [made])
"""
        given = os.memfd_create("given")
        os.write(given, b"outside")
        socket.send_fds(ours, [b"x"], [given])
        os.close(given)
        assert told(code, tmp_path, pass_fds=[theirs.fileno()]) == ["outside"]
        _, (made, *_), _, _ = socket.recv_fds(ours, 10, 1)
        assert os.pread(made, 100, 0) == b"from inside"
        os.close(made)


@needs_seccomp
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_a_compiler_works_behind_the_filter_and_landlock_together(tmp_path):
    (tmp_path / "hello.c").write_text('#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n')
    code = f"""
from pathlib import Path
if landlock.abi():
    system = [Path(p) for p in ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/nix", "/opt")]
    landlock.restrict(system, [Path({str(tmp_path)!r})], devices=[Path("/dev/null")], optional=system)
install()
os.environ["TMPDIR"] = {str(tmp_path)!r}
subprocess.run(["gcc", "-O1", "hello.c", "-o", "hello"], check=True)
os.execv("./hello", ["hello"])
"""
    assert told(code, tmp_path) == ["hello"]


@needs_seccomp
def test_torch_multiplies_behind_the_filter(tmp_path):
    """Its threads, its allocator and its choice of code by processor make calls that nothing else does."""
    pytest.importorskip("torch")
    code = """
install()
import torch
torch.set_num_threads(2)
print(int((torch.ones(300, 300) @ torch.ones(300, 300)).sum()))
"""
    assert told(code, tmp_path) == ["27000000"]


@pytest.mark.parametrize("machine", NUMBERS)
def test_a_gpus_driver_is_asked_only_where_that_was_wanted_and_a_terminal_never(machine):
    number = NUMBERS[machine]["ioctl"]
    asked = {0xC020462A: True, 0x30000001: True, 0x49: True, 0x5412: False, 0x541C: False, 0x8933: False}
    for request, by_the_driver in asked.items():
        arguments = [5, request, 0, 0, 0, 0]
        for driver in (False, True):
            runs = seccomp.decide(machine, number, arguments, tuple(DRIVER.items()) * driver) == seccomp.ALLOW
            assert runs == (driver and by_the_driver), hex(request)
