"""Connections as streams of asyncio."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ._errors import Closed
from ._native import Connection, Listener, connect

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def open_connection(address: str, **options: Any) -> _Streams:
    """Connect as `connect` does, with its options, and return a reader and a writer."""
    loop = asyncio.get_running_loop()
    connection = await loop.run_in_executor(None, lambda: connect(address, **options))
    return await _streams(connection)


async def start_server(
    client_connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    listener: Listener,
) -> None:
    """Accept connections until the listener is closed or this task is cancelled.

    Each connection is passed to `client_connected`, in a task of its own.
    """
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(connection: Connection) -> None:
        await client_connected(*await _streams(connection))

    try:
        while True:
            try:
                # A task that is cancelled does not end the thread that accepts.
                connection = await loop.run_in_executor(None, _accept, listener)
            except Closed:
                return
            if connection is not None:
                task = asyncio.create_task(serve(connection))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
    finally:
        for task in tasks:
            task.cancel()


def _accept(listener: Listener) -> Connection | None:
    try:
        return listener.accept(timeout=0.2)
    except TimeoutError:
        return None


async def _streams(connection: Connection) -> _Streams:
    socket = connection.into_socket()
    socket.setblocking(False)
    return await asyncio.open_connection(sock=socket)
