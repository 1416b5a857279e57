"""Layers that keep a stranger's code inside its process: probed at start, used where the machine has them, reported.

No layer is required and none is trusted alone. Standard library and system calls only, since this runs before torch is
imported and in freshly forked children. What each layer stops, and what it does not, stands in SECURITY.md.
"""

import contextlib
import ctypes
import errno
import os
import platform
import resource
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

__all__ = [
    "NOBODY",
    "Layers",
    "Limits",
    "become_subreaper",
    "confine",
    "die_with_parent",
    "enter_namespaces",
    "guard_memory",
    "mount_private_proc",
    "probe",
    "readable_paths",
    "unguard_memory",
]

_libc = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
SECCOMP_MODE_FILTER = 2
SIGKILL = 9

CLONE_NEW = {
    "mount": 0x0002_0000,
    "ipc": 0x0800_0000,
    "user": 0x1000_0000,
    "pid": 0x2000_0000,
    "net": 0x4000_0000,
}
MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
MS_REC_PRIVATE = 0x4000 | 0x4_0000
NOBODY = 65534
ADDRESS_SPACE_FACTOR = 8


@dataclass(frozen=True)
class Limits:
    """What one confined process may take.

    Args:
        memory_bytes: Private memory beyond what the process has when it starts, and an eighth of the address space.
        file_bytes: Largest file, memory files included.
        open_files: Open descriptors.
        processes: Processes of this user; counted for the user as a whole, so generous.
        cpu_s: Seconds of processor time, a second line behind the deadline.
        address_space: Limit that too; CUDA reserves a multiple of the machine's and the GPU's memory.
    """

    memory_bytes: int = 6 << 30
    file_bytes: int = 4 << 30
    open_files: int = 512
    processes: int = 4096
    cpu_s: int = 600
    address_space: bool = True


@dataclass(frozen=True)
class Layers:
    """Which layers this machine has: each is "on", or the reason why it is not.

    Args:
        state: One entry per layer of `ORDER`.
    """

    state: Mapping[str, str]

    ORDER = ("pid", "net", "ipc", "mount", "landlock", "seccomp", "capabilities", "nobody")

    def on(self, layer: str) -> bool:
        """Tell whether a layer is in use."""
        return self.state.get(layer) == "on"

    @property
    def level(self) -> str:
        """Return strong, partial or weak.

        strong: own process and network namespaces, Landlock and seccomp. partial: seccomp, with Landlock or an own
        process namespace. weak: less than that; resource limits always hold.
        """
        if all(self.on(layer) for layer in ("pid", "net", "landlock", "seccomp")):
            return "strong"
        if self.on("seccomp") and (self.on("landlock") or self.on("pid")):
            return "partial"
        return "weak"


def _refused(what: str) -> OSError:
    """Return the error of the system call that has just failed."""
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code), what)


def _prctl(option: int, value: int = 0, pointer: object = 0) -> None:
    if _libc.prctl(option, value, pointer, 0, 0) != 0:
        raise _refused(f"prctl({option})")


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends.

    Args:
        parent: Process id the caller saw before forking; 0 where it lies in another process namespace.
    """
    _prctl(PR_SET_PDEATHSIG, SIGKILL)
    if parent and os.getppid() != parent:  # it ended between fork and prctl
        os._exit(1)


def guard_memory() -> None:
    """Close this process's memory, descriptors and environment to other processes of the same user."""
    _prctl(PR_SET_DUMPABLE, 0)


def unguard_memory() -> None:
    """Undo `guard_memory`, which forks inherit: torch and CUDA read their own /proc entries."""
    _prctl(PR_SET_DUMPABLE, 1)


def become_subreaper() -> None:
    """Adopt every descendant whose parent ends."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


# --- namespaces ------------------------------------------------------------------------------------------


def enter_namespaces(layers: Layers) -> None:
    """Move the children of this process into namespaces of their own; must run single-threaded.

    Raises:
        OSError: The kernel refuses, although the probe had found it willing.
    """
    names = [name for name in ("pid", "net", "ipc", "mount") if layers.on(name)]
    if not names:
        return
    flags = sum(CLONE_NEW[name] for name in names)
    user, group = os.geteuid(), os.getegid()
    if user != 0:
        flags |= CLONE_NEW["user"]
    if _libc.unshare(flags) != 0:
        raise _refused(f"unshare({'+'.join(names)})")
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")


def mount_private_proc() -> None:
    """Show only this process namespace in /proc; needs the pid and mount namespaces."""
    _libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None)
    if _libc.mount(b"proc", b"/proc", b"proc", MS_NOSUID_NODEV_NOEXEC, None) != 0:
        raise _refused("mount /proc")


# --- Landlock --------------------------------------------------------------------------------------------

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_READ = 0b1101  # execute, read file, read directory
_FILE_RIGHTS = 0b0111 | 1 << 14 | 1 << 15  # execute, write, read, truncate, ioctl


def _landlock_abi() -> int:
    return int(_libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1))


def _landlock(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Allow reading below some paths and everything below others; no TCP, no signals to the outside."""
    abi = _landlock_abi()
    if abi < 1:
        raise OSError(errno.ENOSYS, "Landlock is not available")
    rights = (1 << 13) - 1
    for version, bit in ((2, 13), (3, 14), (5, 15)):
        if abi >= version:
            rights |= 1 << bit
    attributes = struct.pack("QQQ", rights, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = _libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), 0)
    if ruleset < 0:
        raise _refused("landlock_create_ruleset")
    try:
        for paths, allowed in ((readable, _READ), (writable, rights)):
            for path in paths:
                _landlock_allow(ruleset, path, allowed, rights)
        _prctl(PR_SET_NO_NEW_PRIVS, 1)
        if _libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) != 0:
            raise _refused("landlock_restrict_self")
    finally:
        os.close(ruleset)


def _landlock_allow(ruleset: int, path: str, allowed: int, handled: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # a path that does not exist needs no permission
        return
    try:
        if not Path(path).is_dir():
            allowed &= _FILE_RIGHTS & handled
        if _libc.syscall(_LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", allowed, handle), 0) != 0:
            raise _refused(f"landlock_add_rule({path})")
    finally:
        os.close(handle)


def readable_paths() -> tuple[str, ...]:
    """Return what Python, torch and Triton read: the interpreter, its packages and the system's libraries."""
    system = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/opt", "/nix", "/proc", "/sys")
    settings = tuple(
        f"/etc/{name}"
        for name in (
            "ld.so.cache",
            "ld.so.conf",
            "ld.so.conf.d",
            "localtime",
            "passwd",
            "group",
            "nsswitch.conf",
        )
    )
    devices = ("/dev/urandom", "/dev/random", "/dev/zero", "/dev/null")
    own = (sys.prefix, sys.base_prefix, sys.exec_prefix, str(Path(sys.executable).resolve().parent))
    packages = (path for path in sys.path if path and Path(path).exists())
    return tuple(dict.fromkeys((*system, *settings, *devices, *own, *packages)))


# --- seccomp ---------------------------------------------------------------------------------------------

# Numbers per architecture: unistd_64.h (x86_64) and asm-generic/unistd.h (aarch64).
_ARCHITECTURES = {"x86_64": (0xC000_003E, 0), "aarch64": (0xC000_00B7, 1)}
_DENIED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "connect": (
        42,
        203,
    ),  # a network namespace and Landlock leave sockets with a path, of daemons for example
    "shmget": (29, 194),  # memory that belongs to no process, and that of others
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "memfd_secret": (447, 447),
}
_MEMFD_CREATE = (319, 279)
_KILL = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
}
_OWNER_OF_SIGNALS = (
    ((72, 25), (8, 10, 15)),  # fcntl: F_SETOWN, F_SETSIG, F_SETOWN_EX
    ((16, 29), (0x8901, 0x8902)),  # ioctl: FIOSETOWN, SIOCSPGRP
)
"""A file can be told to signal any process of the user when it becomes readable."""
_SOCKET, _SOCKETPAIR = (41, 198), (53, 199)
_FAMILY_UNIX, _TYPE_BITS, _STREAM, _SEQUENCED = 1, 0xF, 1, 5
_CLONE = (56, 220)
_CLONE3 = (
    435  # its flags lie in memory, out of a filter's sight: refused as unknown, so libc falls back to clone
)
_NEW_NAMESPACES = 0x7E02_0000  # mount, cgroup, uts, ipc, user, pid, net

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT, _SECOND_ARGUMENT_AT = 0, 4, 16, 24
_ALLOW, _REFUSE, _UNKNOWN = 0x7FFF_0000, 0x0005_0000 | errno.EPERM, 0x0005_0000 | errno.ENOSYS
_X32_BIT = 0x4000_0000

_Instruction = tuple[int, int, int, int]


def _seccomp_program(*, signals_confined: bool, memory_files: bool, connect: bool) -> list[_Instruction]:
    """Return the filter: a list of (code, jump if true, jump if false, operand)."""
    architecture, column = _ARCHITECTURES[platform.machine()]
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _REFUSE),
    ]
    denied = [numbers for name, numbers in _DENIED.items() if not (connect and name == "connect")]
    for numbers in (*denied, *(() if memory_files else (_MEMFD_CREATE,))):
        program += [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _REFUSE)]
    program += [
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _UNKNOWN),
        (_EQUAL, 0, 4, _CLONE[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_ANY_BIT, 0, 1, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    for numbers in (_SOCKET, _SOCKETPAIR):
        # CUDA starts by opening a Unix socket. Those without connection would reach an address without `connect`.
        program += [
            (_EQUAL, 0, 8, numbers[column]),
            (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
            (_EQUAL, 0, 5, _FAMILY_UNIX),
            (_LOAD, 0, 0, _SECOND_ARGUMENT_AT),
            (_AND, 0, 0, _TYPE_BITS),
            (_EQUAL, 1, 0, _STREAM),
            (_EQUAL, 0, 1, _SEQUENCED),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _REFUSE),
        ]
    for numbers, commands in _OWNER_OF_SIGNALS:
        program += [(_EQUAL, 0, len(commands) + 3, numbers[column]), (_LOAD, 0, 0, _SECOND_ARGUMENT_AT)]
        program += [(_EQUAL, len(commands) - i, 0, command) for i, command in enumerate(commands)]
        program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    if not signals_confined:
        # Without a process namespace only signals to oneself (or, by 0, to one's own group) pass.
        own = os.getpid()
        for numbers in _KILL.values():
            program += [
                (_EQUAL, 0, 5, numbers[column]),
                (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
                (_EQUAL, 2, 0, own),
                (_EQUAL, 1, 0, 0),
                (_RETURN, 0, 0, _REFUSE),
                (_RETURN, 0, 0, _ALLOW),
            ]
    program.append((_RETURN, 0, 0, _ALLOW))
    return program


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _seccomp(*, signals_confined: bool, memory_files: bool, connect: bool = False) -> None:
    if platform.machine() not in _ARCHITECTURES or sys.byteorder != "little":
        raise OSError(errno.ENOSYS, f"no seccomp filter for {platform.machine()}")
    steps = _seccomp_program(signals_confined=signals_confined, memory_files=memory_files, connect=connect)
    packed = b"".join(struct.pack("HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    program = _FilterProgram(len(packed) // 8, ctypes.addressof(buffer))
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program))


# --- privileges and limits -------------------------------------------------------------------------------


def _drop_capabilities() -> None:
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="ascii"))
    for capability in range(last + 1):
        with contextlib.suppress(OSError):  # dropping needs CAP_SETPCAP, which an ordinary user lacks
            _prctl(PR_CAPBSET_DROP, capability)
    header = struct.pack("Ii", 0x2008_0522, 0)  # _LINUX_CAPABILITY_VERSION_3, this thread
    if _libc.capset(header, struct.pack("6I", 0, 0, 0, 0, 0, 0)) != 0:
        raise _refused("capset")


def _become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def _set_limits(limits: Limits) -> None:
    page = resource.getpagesize()
    sizes = [int(field) for field in Path("/proc/self/statm").read_text(encoding="ascii").split()]
    mapped, private = sizes[0] * page, sizes[5] * page
    for kind, value in (
        # Private memory is what counts; shared maps of large sparse files only take address space.
        (resource.RLIMIT_DATA, private + limits.memory_bytes),
        (
            resource.RLIMIT_AS,
            mapped + ADDRESS_SPACE_FACTOR * limits.memory_bytes
            if limits.address_space
            else resource.RLIM_INFINITY,
        ),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        bounded = (
            value
            if hard == resource.RLIM_INFINITY
            else hard
            if value == resource.RLIM_INFINITY
            else min(value, hard)
        )
        resource.setrlimit(kind, (bounded, bounded))


def confine(
    layers: Layers,
    limits: Limits,
    *,
    writable: Sequence[str],
    readable: Sequence[str] = (),
    memory_files: bool = False,
    connect: bool = False,
) -> None:
    """Give up everything a stranger's code does not need; cannot be undone.

    Runs in the process that is about to run that code, after it has opened what it needs.

    Args:
        layers: What the probe found.
        limits: What the process may take.
        writable: Folders it may write, and files it may use in full.
        readable: Paths it may read beside `readable_paths()`.
        memory_files: It may make files in memory, which no limit of memory counts.
        connect: It may connect to Unix sockets, those with a path outside of its namespaces and folders too.
    """
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    _set_limits(limits)
    if layers.on("landlock"):
        _landlock((*readable_paths(), *readable), (*writable, "/dev/null"))
    elif layers.on("nobody") and not readable:  # what is named there may be open to this user alone
        _become_nobody()
    if layers.on("capabilities"):
        _drop_capabilities()
    if layers.on("seccomp"):
        _seccomp(signals_confined=layers.on("pid"), memory_files=memory_files, connect=connect)


# --- probe -----------------------------------------------------------------------------------------------


def _try_in_child(attempt: Callable[[], None]) -> str:
    """Run something irrevocable in a child; return "on", or the reason why it failed."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            attempt()
            reason = b"on"
        except Exception as error:  # noqa: BLE001 - the outermost frame of a child: every reason is a reply
            text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            reason = (text or type(error).__name__).encode()
        with contextlib.suppress(OSError):
            os.write(write_end, reason[:400])
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        reason = pipe.read()
    os.waitpid(child, 0)
    return reason.decode(errors="replace") or "the attempt was killed"


def _in_namespaces(names: Sequence[str]) -> None:
    enter_namespaces(Layers(dict.fromkeys(names, "on")))
    if "pid" not in names:
        return

    def inside() -> None:
        if os.getpid() != 1:
            raise OSError(errno.EINVAL, "not the first process of its namespace")
        if "mount" in names:
            mount_private_proc()

    reason = _try_in_child(inside)
    if reason != "on":
        raise OSError(errno.EPERM, reason)


def _as_nobody(scratch: str) -> None:
    """Become nobody, who must reach the sessions' folders and the packages."""
    if os.geteuid() != 0:
        raise OSError(errno.EPERM, "only root can become nobody")
    for folder in (Path(scratch), Path(scratch).parent):
        folder.chmod(0o711)
    packages = [path for path in sys.path if Path(path).is_dir()]
    _become_nobody()
    for path in (scratch, *packages):
        if not os.access(path, os.X_OK):
            raise OSError(errno.EACCES, f"nobody cannot enter {path}")


def probe(scratch: str) -> Layers:
    """Find out which layers work on this machine; takes about 20 ms, leaves nothing behind.

    Args:
        scratch: The folder below which sessions get theirs; opened to nobody where that layer is used.
    """
    state = {name: _try_in_child(partial(_in_namespaces, [name])) for name in ("net", "ipc")}
    state["pid"] = _try_in_child(lambda: _in_namespaces(["pid"]))
    state["mount"] = _try_in_child(lambda: _in_namespaces(["pid", "mount"]))
    together = [name for name, reason in state.items() if reason == "on"]
    if together and _try_in_child(lambda: _in_namespaces(together)) != "on":
        state |= dict.fromkeys(together, "namespaces do not work together here")
    if state["pid"] == "on" and state["mount"] != "on":
        # With the outer /proc the stub could neither count nor find the processes inside.
        state["pid"] = f"needs a private /proc: {state['mount']}"
    state["landlock"] = _try_in_child(lambda: _landlock(readable_paths(), [scratch]))
    state["seccomp"] = _try_in_child(lambda: _seccomp(signals_confined=False, memory_files=False))
    state["capabilities"] = _try_in_child(_drop_capabilities)
    state["nobody"] = (
        "not needed beside landlock"
        if state["landlock"] == "on"
        else _try_in_child(lambda: _as_nobody(scratch))
    )
    return Layers({name: state[name] for name in Layers.ORDER})
