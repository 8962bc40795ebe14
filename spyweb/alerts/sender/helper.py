"""The daemon's end of the process that uses Apprise: it starts with the first message, and ends soon after the last."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio import Future, SubprocessTransport, get_running_loop
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from typing import cast

import structlog
from msgspec import DecodeError
from msgspec.structs import replace

from spyweb.alerts.sender.wire import HelperAnswer, HelperRequest, decode_answer, encode_line
from spyweb.clock import Clock, Handle
from spyweb.confined.child import bare_environment, describe_exit

log = structlog.get_logger()

AT_ONCE = 8  # messages under way
IDLE_S = 30.0  # without work, until the process ends
ANSWER_S = 40.0  # until a message counts as hung: every service gives up before
MOST_HEARD = 1 << 20  # bytes without the end of a line

PASSED_ON = ("PATH", "LANG", "HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
NO_LOGINS = {"NETRC": os.devnull}  # else a service is sent the login that ~/.netrc has for its host


class HelperProcess(asyncio.SubprocessProtocol):
    """One process, from its start to its end, and the requests that it has not answered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._transport: SubprocessTransport | None = None  # none yet
        self._heard = bytearray()
        self._pending: dict[int, Future[HelperAnswer]] = {}
        self._idle: Handle | None = None
        self.takes = True  # requests
        self.over: Future[None] = get_running_loop().create_future()

    async def start(self, environ: Mapping[str, str]) -> None:
        """Start it with the environment that services need, and no variable that may be secret.  Raises OSError."""
        names = (*PASSED_ON, *PROXIES, *(name.upper() for name in PROXIES))
        passed = {name: environ[name] for name in names if name in environ}
        transport, _ = await get_running_loop().subprocess_exec(
            lambda: self,
            *(sys.executable, "-P", "-m", "spyweb.alerts.sender.worker.main"),
            env=bare_environment() | passed | NO_LOGINS,
            cwd="/",
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,  # libraries may write addresses there
            start_new_session=True,  # a Ctrl-C in the terminal must reach the daemon alone
        )
        self._transport = transport

    async def ask(self, request: HelperRequest) -> HelperAnswer:
        """Ask, and wait for the answer; a missing answer is a failure."""
        if self._idle:
            self._idle.cancel()
        answer: Future[HelperAnswer] = get_running_loop().create_future()
        self._pending[request.id] = answer

        def give_up() -> None:
            self.takes = False  # its thread ends only with the process
            late = "timeout: the service did not answer in time"
            self._take_answer(HelperAnswer(id=request.id, ok=False, reason=late))

        alarm = self._clock.call_later(ANSWER_S, give_up)
        try:
            assert self._transport is not None
            stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))
            stdin.write(encode_line(request) + b"\n")
            return await answer
        finally:
            alarm.cancel()
            self._pending.pop(request.id, None)
            if not self._pending and self.takes:
                self._idle = self._clock.call_later(IDLE_S, self.stop)
            elif not self._pending:
                self.stop()

    def stop(self) -> None:
        """End it; requests under way fail."""
        self.takes = False
        if self._transport and not self.over.done():
            self._transport.kill()

    def _take_answer(self, answer: HelperAnswer) -> None:
        future = self._pending.get(answer.id)
        if future and not future.done():
            future.set_result(answer)

    # What asyncio reports

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._heard += data
        *lines, self._heard[:] = bytes(self._heard).split(b"\n")
        try:
            for line in lines:
                self._take_answer(decode_answer(line))
        except DecodeError:
            log.error("the process that sends to alert channels sent an invalid answer")
            self.stop()
        if len(self._heard) > MOST_HEARD:
            self.stop()

    def process_exited(self) -> None:
        self.takes = False
        code = self._transport.get_returncode() if self._transport else None
        if self._idle:
            self._idle.cancel()
        reason = f"the process that sends has ended: {describe_exit(code or 0)}"
        for number in tuple(self._pending):
            self._take_answer(HelperAnswer(id=number, ok=False, reason=reason))
        if not self.over.done():
            self.over.set_result(None)
        if self._transport:
            self._transport.close()


class AlertHelper:
    """Asks the process, and starts it when it is needed."""

    def __init__(self, clock: Clock, environ: Mapping[str, str]) -> None:
        self._clock = clock
        self._environ = environ
        self._process: HelperProcess | None = None
        self._starting = asyncio.Lock()
        self._seats = asyncio.Semaphore(AT_ONCE)
        self._asked = 0

    async def ask(self, request: HelperRequest) -> HelperAnswer:
        """Ask; this sets the `id` of the request."""
        async with self._seats:
            self._asked += 1
            request = replace(request, id=self._asked)
            try:
                async with self._starting:
                    process = self._process
                    if process is None or not process.takes:
                        process = HelperProcess(self._clock)
                        await process.start(self._environ)
                        self._process = process
            except OSError as error:
                reason = f"the process that sends could not be started: {error.strerror or error}"
                return HelperAnswer(id=request.id, ok=False, reason=reason)
            return await process.ask(request)

    async def close(self) -> None:
        """End the process, and wait for its end."""
        if self._process:
            self._process.stop()
            await self._process.over
