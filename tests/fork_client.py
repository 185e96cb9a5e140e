"""The commands `python` and `regard` of `tests.fork_server`: python -IS fork_client.py SOCKET ARGUMENT...

Hand the command, the environment and the standard streams over to the server, pass signals on, and end as the forked
process ends. This program starts with every command, so it imports little.
"""

import marshal
import os
import resource
import signal
import socket
import struct
import sys
from contextlib import suppress

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_DATA)


def main(address: str, *arguments: str) -> None:
    """Run Python with arguments in a forked process, or in this one if the server declines."""
    limits = [resource.getrlimit(number) for number in LIMITS]
    ignored = [int(number) for number in FORWARDED if signal.getsignal(number) == signal.SIG_IGN]
    closed = [stream for stream in range(3) if not is_open(stream)]
    while (null := os.open(os.devnull, os.O_RDWR)) < 3:
        pass  # the number of a closed stream is occupied, so that the connection does not get it
    request = marshal.dumps((arguments, os.getcwd(), dict(os.environb), limits, ignored, closed))  # noqa: PTH109
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [struct.pack("=I", len(request))], [0, 1, 2])
        connection.sendall(request)
        if receive(connection, 1) == b"y":
            for number in FORWARDED:
                signal.signal(number, lambda sent, _: connection.send(bytes([sent])))
            for stream in range(3):
                os.dup2(null, stream)  # only the forked process keeps a pipe open
            end_like(struct.unpack("=i", receive(connection, 4))[0])
    for stream in (*closed, null):
        os.close(stream)
    os.execv(sys.executable, [sys.executable, *arguments])


def is_open(descriptor: int) -> bool:
    """Return whether a file descriptor is open."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def receive(connection: socket.socket, size: int) -> bytes:
    """Return so many bytes, for which a signal may interrupt the waiting."""
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            os._exit(os.EX_SOFTWARE)  # the server has ended, and the process with it
        data += part
    return data


def end_like(status: int) -> None:
    """End with the exit code of another process, or by the signal that ended it."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
