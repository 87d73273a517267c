"""Runs a command under the system call filter of a systemd unit, and under its memory bound where permitted.

    python -m tests.deploy.confined UNIT COMMAND…

systemd itself need not run: `systemd-analyze` says which calls the unit's groups are, and libseccomp sets
the filter, which the command inherits. A forbidden call fails with EPERM, as under the unit. The memory
bound is that of a control group (version 1), where this user may make one; else there is none.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_ALLOW = 0x7FFF0000
_EPERM = 0x00050000 | errno.EPERM
_GROUPS = Path("/sys/fs/cgroup/memory")


def setting(unit: Path, key: str) -> list[str]:
    """Return the values of a key of a unit, in their order."""
    return re.findall(rf"^{key}=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)


def allowed(unit: Path) -> set[str]:
    """Return the system calls that a unit's filter allows: a list of them, less those of the lines with a
    tilde.
    """
    allowed_calls = calls(["@default"])  # which systemd always adds
    for words in setting(unit, "SystemCallFilter"):
        if words.startswith("~"):
            allowed_calls -= calls(words[1:].split())
        else:
            allowed_calls |= calls(words.split())
    return allowed_calls


def calls(names: Iterable[str]) -> set[str]:
    """Return system calls by name, groups (`@resources`) taken apart."""
    resolved: set[str] = set()
    for name in names:
        if not name.startswith("@"):
            resolved.add(name)
            continue
        words = ["systemd-analyze", "syscall-filter", "--no-pager", name]
        output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        members = re.findall(r"^ +([@a-z_0-9-]+)$", output, re.MULTILINE)
        resolved |= calls(members)
    return resolved


def confine(names: Iterable[str]) -> None:
    """Let this process, and what it starts, make these system calls alone."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_EPERM)))
    for name in names:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # others are of other processors
            library.seccomp_rule_add(rules, ctypes.c_uint32(_ALLOW), number, 0)
    if library.seccomp_load(rules) != 0:
        raise OSError("the filter was not taken")


def bound_memory(size: str) -> Path | None:
    """Put this process into a control group with this bound; its folder, None where not permitted."""
    folder = _GROUPS / f"blindsight-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(size)
        (folder / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return None
    return folder


def main() -> None:
    unit, *command = sys.argv[1:]
    [size] = setting(Path(unit), "MemoryMax")
    bounded = bound_memory(size)
    print(f"memory bound: {'none, not permitted' if bounded is None else size}", flush=True)
    confine(allowed(Path(unit)))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
