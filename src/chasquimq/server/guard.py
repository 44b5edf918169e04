"""Hold one server, and stop it when whoever asked for it is gone. Run as a script of its own.

    python -I -S guard.py <folder to remove> <program> <argument>...

The guard stands between the program and its server: it is the server's parent, and the other
end of its stdin is in the program's hands.

1. start the server and say `pid <n>`;
2. obey lines on stdin: `term`, `kill`, `pause`, `resume` (the last two are answered);
3. stdin ended, or our parent is another: the program is gone, however it died. Stop the
   server and remove the folder;
4. when the server ends, say `exit <code>` and end.

Why not PR_SET_PDEATHSIG alone: it fires when the *thread* that forked ends, and exists on Linux
only. Why the guard is the server's parent and not its sibling: an id that it has not reaped
cannot be given to another process, so a signal never hits a stranger. The guard itself has one
thread, so there PDEATHSIG is right: it covers a guard that is killed. Standard library only,
and nothing of ours: a start costs 15 ms.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import sys
import time

PATIENCE = 5.0  # seconds a server has to end by itself
PR_SET_PDEATHSIG = 1
STOPPED: set[int] = set()  # a stop is told of once: waiting for a second one would never end


def main(folder: str, *command: str) -> int:
    parent = os.getppid()
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # whatever the program holds back for itself

    pid = spawn(command)
    say(f"pid {pid}")
    commands = b""
    while True:
        # The timeout is for a pipe whose other end lives on in a fork of the parent.
        ready, _, _ = select.select([0, woken], [], [], 1.0)
        deserted = os.getppid() != parent
        if woken in ready:
            deserted |= signal.SIGTERM in os.read(woken, 512)
        if 0 in ready:
            data = os.read(0, 512)
            commands += data
            deserted |= not data
        *lines, commands = commands.split(b"\n")
        code = None
        while lines and code is None:
            code = obey(lines.pop(0).decode(), pid)
        if code is None:
            code = end_server(pid) if deserted else ended(pid)
        if code is not None:
            say(f"exit {code}")
            if deserted and folder:
                shutil.rmtree(folder, ignore_errors=True)
            return 0


def spawn(command: tuple[str, ...]) -> int:
    us = os.getpid()
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        if libc is not None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != us:  # the guard died before the call
                os._exit(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)  # our stderr is the server's log
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def obey(line: str, pid: int) -> int | None:
    """Do as told; the server's exit code, should it turn out to have ended."""
    code = None
    if line == "term":
        STOPPED.discard(pid)
        os.kill(pid, signal.SIGCONT)  # a paused server would not hear the rest
        os.kill(pid, signal.SIGTERM)
    elif line == "kill":
        os.kill(pid, signal.SIGKILL)
    elif line == "pause":
        if pid not in STOPPED:
            os.kill(pid, signal.SIGSTOP)
            code = ended(pid, os.WUNTRACED)
            STOPPED.add(pid)
        say("paused")
    elif line == "resume":
        STOPPED.discard(pid)
        os.kill(pid, signal.SIGCONT)
        say("resumed")
    return code


def ended(pid: int, wait: int = os.WNOHANG) -> int | None:
    done, status = os.waitpid(pid, wait)
    return os.waitstatus_to_exitcode(status) if done and not os.WIFSTOPPED(status) else None


def end_server(pid: int) -> int:
    obey("term", pid)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        code = ended(pid)
        if code is not None:
            return code
        time.sleep(0.01)
    obey("kill", pid)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def say(line: str) -> None:
    try:
        os.write(1, line.encode() + b"\n")
    except OSError:
        pass  # nobody is listening any more; the loop will notice


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
