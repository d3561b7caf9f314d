"""Runs before bubblewrap where it needs help: it gives up root, makes a network that has one door, and sets limits.

Usage: sandbox_start.py SETUP BWRAP … [DESCRIPTOR], with SETUP as a JSON object. It uses the standard library alone.

1. `shown`, for root: a list of paths. In a mount namespace of its own, each is mounted once more, as BASE/0, BASE/1, …,
with the owner of the path and `nobody` exchanged (an id-mapped mount, mount_setattr(2), Linux 5.12). So `nobody` works
there as the owner would, and nowhere else. Then this process becomes `nobody`, without groups and capabilities. 2.
`port`: it enters a network namespace that has a loopback interface and nothing else, listens on this port there, and
sends the listening socket to DESCRIPTOR, a Unix socket: who accepts its connections stays outside. 3. `processes`,
`data`: limits of the kernel. Processes are counted in a user namespace of its own, thus without those of others
(Linux 5.14). 4. It runs BWRAP.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys

BASE = "/var/tmp"  # empty in every sandbox
NOBODY = 65534
REFUSED = 125  # the exit code where it cannot be done

_ALL = 2**32 - 1  # how many ids there are
_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
_PR_SET_DUMPABLE = 4
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 0x1, 0x40  # netdevice(7)
_MS_REC, _MS_PRIVATE, _MS_NOSUID, _MS_NODEV = 16384, 1 << 18, 2, 4
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same on all of Linux's architectures but Alpha
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE, _AT_SYMLINK_NOFOLLOW = -100, 0x1000, 0x8000, 0x100
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH, _MOUNT_ATTR_IDMAP = 1, 4, 0x00100000


class _MountAttr(ctypes.Structure):
    """struct mount_attr."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def place_of(number: int) -> str:
    """Where a path is mounted, by its place in SHOWN."""
    return f"{BASE}/{number}"


def main() -> None:
    setup, command = json.loads(sys.argv[1]), sys.argv[2:]
    doing = "give up root"
    try:
        if setup["shown"] is not None:
            _give_up_root(setup["shown"])
        doing = "have a network or limits of its own"
        if setup["port"] is not None or setup["processes"] is not None:
            _enter_user_namespace(_CLONE_NEWNET if setup["port"] is not None else 0)
        if setup["port"] is not None:
            _listen(setup["port"], int(command.pop()))
        for limit, most in ((resource.RLIMIT_NPROC, setup["processes"]), (resource.RLIMIT_DATA, setup["data"])):
            if most is not None:
                resource.setrlimit(limit, (most, most))
        doing = f"run {command[0]}"
        os.execv(command[0], command)
    except (OSError, ValueError) as error:
        print(f"the sandbox cannot {doing}: {error}", file=sys.stderr)
        sys.exit(REFUSED)


def _give_up_root(shown: list[str]) -> None:
    os.chdir("/")
    _checked(_libc.unshare(_CLONE_NEWNS), "unshare")
    _checked(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "mount")
    trees = [(_tree_of(path), os.path.isdir(path)) for path in shown]
    _checked(_libc.mount(b"tmpfs", BASE.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=0755"), "mount")
    for number, (tree, is_directory) in enumerate(trees):
        _attach(tree, place_of(number), is_directory)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def _enter_user_namespace(more: int) -> None:
    """A new one, in which this user is the same one; with the right to set up what is made in it."""
    uid, gid = os.geteuid(), os.getegid()
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl")  # who has changed the user may not write its own map
    _checked(_libc.unshare(_CLONE_NEWUSER | more), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _listen(port: int, descriptor: int) -> None:
    """Listens on the loopback interface of the network namespace that this process is in; sends the socket."""
    with socket.socket(fileno=descriptor) as channel, socket.socket() as listener:
        up = struct.pack("16sH14x", b"lo", _IFF_UP | _IFF_RUNNING)
        fcntl.ioctl(listener, _SIOCSIFFLAGS, up)
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
        socket.send_fds(channel, [b"l"], [listener.fileno()])


def _tree_of(path: str) -> int:
    """A descriptor of the path's mount, cloned, in which its owner and `nobody` are exchanged."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE | _AT_SYMLINK_NOFOLLOW
    tree = _checked(_libc.syscall(_OPEN_TREE, _AT_FDCWD, path.encode(), flags), path)
    owner = os.fstat(tree)
    if (owner.st_uid, owner.st_gid) != (NOBODY, NOBODY):
        namespace = _exchanging(owner.st_uid, owner.st_gid)
        attr = _MountAttr(_MOUNT_ATTR_IDMAP, 0, 0, namespace)
        flags = _AT_EMPTY_PATH | _AT_RECURSIVE
        _checked(_libc.syscall(_MOUNT_SETATTR, tree, b"", flags, ctypes.byref(attr), ctypes.sizeof(attr)), path)
        os.close(namespace)
    return tree


def _exchanging(uid: int, gid: int) -> int:
    """A descriptor of a user namespace that exchanges these ids and `nobody`; whoever was in it has ended."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os._exit(0 if _libc.unshare(_CLONE_NEWUSER) == 0 and os.write(theirs, b"1") and not signal.pause() else 1)
    try:
        os.close(theirs)
        if not os.read(ours, 1):
            raise OSError(0, "no user namespace may be made")
        for name, number in (("uid_map", uid), ("gid_map", gid)):
            with open(f"/proc/{child}/{name}", "w") as file:
                file.write(_exchange(number))
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ours)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _exchange(number: int) -> str:
    """An id map (user_namespaces(7)) in which only `number` and `nobody` are another id."""
    low, high = sorted((number, NOBODY))
    spans = [(0, 0, low), (low, high, 1), (low + 1, low + 1, high - low - 1), (high, low, 1)]
    spans.append((high + 1, high + 1, _ALL - high - 1))
    if low == high:
        spans = [(0, 0, _ALL)]
    return "".join(f"{inside} {outside} {count}\n" for inside, outside, count in spans if count)


def _attach(tree: int, place: str, is_directory: bool) -> None:
    os.mkdir(place) if is_directory else os.close(os.open(place, os.O_CREAT | os.O_WRONLY))
    _checked(_libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, place.encode(), _MOVE_MOUNT_F_EMPTY_PATH), place)
    os.close(tree)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


if __name__ == "__main__":
    main()
