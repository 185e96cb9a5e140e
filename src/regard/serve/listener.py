"""Accept connections within the limit of open files."""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from typing import Any

from regard.serve.connections import RESERVED_CONNECTIONS, HttpConnection

log = logging.getLogger(__name__)

ACCEPT_BATCH = 32
"""Connections that are accepted before data of others is read again."""
OWN_FILES = 128
"""File descriptors that the process needs besides its connections."""

_BACKLOG = 1024  # connections that the kernel holds until they are accepted
_ACCEPT_DELAY = 0.1  # seconds until connections are accepted again after the process ran out of file descriptors
_LOG_INTERVAL = 60.0  # seconds between two log lines about the same lack of file descriptors


def raise_file_limit(connections: int) -> int:
    """Raise the soft limit of open files as far as a number of connections needs it.

    Returns:
        How many connections the limit allows: as many as asked for, unless the hard limit is lower.
    """
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return connections
    own = OWN_FILES + RESERVED_CONNECTIONS + 2 * ACCEPT_BATCH
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + own
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (ValueError, OSError):
        allowed = soft
    return max(1, min(connections, allowed - own))


class Listener:
    """Accepts connections, a few at a time, and waits quietly while the process has no file descriptor left."""

    def __init__(self, listening: socket.socket, make_connection: Callable[[], HttpConnection]) -> None:
        """Start to accept connections in the running event loop."""
        self._socket, self._make_connection = listening, make_connection
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed, self._logged_at = False, -_LOG_INTERVAL
        listening.setblocking(False)
        listening.listen(_BACKLOG)
        self._resume()

    def close(self) -> None:
        """Accept no more connections."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._socket)

    async def wait_closed(self) -> None:
        """Wait until the connections accepted last are set up."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPT_BATCH):
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._pause(error)
                return
            connection.setblocking(False)
            task = self._loop.create_task(self._loop.connect_accepted_socket(self._make_connection, connection))
            self._tasks.add(task)
            task.add_done_callback(self._on_connected)

    def _on_connected(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark it as retrieved: a client that disconnects at once is no error

    def _pause(self, error: OSError) -> None:
        """Leave connections to the kernel for a moment; say why, but not each time."""
        if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            raise error
        if self._loop.time() - self._logged_at >= _LOG_INTERVAL:
            self._logged_at = self._loop.time()
            reason = os.strerror(error.errno)
            log.warning("no connection can be accepted: %s; raise the limit of open files (ulimit -n)", reason)
        self._loop.remove_reader(self._socket)
        self._loop.call_later(_ACCEPT_DELAY, self._resume)
