"""Events as a state machine: whatever the order, a client has seen all that it wanted, or was told `reset`.

Each client keeps what it has read.  The model is all that was published while its topics were wanted by anybody.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spyweb.events import hub as events
from spyweb.events.happenings import EventType
from spyweb.events.hub import EventHub, Wish
from spyweb.model import JobId
from tests.fakes.listening import BACKUP, PRICES, Client, Listening

MOST = 8  # events that are kept: the law is about the edge, which is to be near
MOST_SESSIONS = 2  # so that often none is connected


@dataclass(slots=True)
class Session:
    """One client over all its connections."""

    wish: Wish
    client: Client | None
    mark: str | None = None
    expected: list[int] = field(default_factory=list)  # what was published since its last reset, and that it wants
    got: list[int] = field(default_factory=list)
    resets: int = 0  # of this connection, that are dealt with


class ListeningMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._most, events.MOST_KEPT = events.MOST_KEPT, MOST
        self._taken, events.MOST_TAKEN = events.MOST_TAKEN, 150
        self.listening = Listening()
        self.hub: EventHub = self.listening.hub
        self.sessions: list[Session] = []

    def teardown(self) -> None:
        events.MOST_KEPT, events.MOST_TAKEN = self._most, self._taken

    @precondition(lambda self: len(self.sessions) < MOST_SESSIONS)
    @rule(only=st.sampled_from([None, PRICES]))
    def connect(self, only: JobId | None) -> None:
        wish = Wish(types=frozenset({EventType.RUN}), job=only)
        session = Session(wish, None)
        session.client = self.listening.follow(wish)
        self.sessions.append(session)

    @rule(job=st.sampled_from([PRICES, BACKUP]), times=st.integers(1, 5))
    def happen(self, job: JobId, times: int) -> None:
        for _ in range(times):
            number = self.listening.run(job)
            for session in self.sessions:
                if session.wish.job in (None, job):
                    session.expected.append(number)

    @rule(times=st.integers(1, 10))
    def chatter(self, times: int) -> None:
        for _ in range(times):
            self.listening.line("x")

    @rule()
    def follow_the_log(self) -> None:
        self.listening.follow(Wish(types=frozenset({EventType.LOG}), job=PRICES))

    @precondition(lambda self: any(session.client for session in self.sessions))
    @rule(data=st.data(), whole=st.booleans())
    def read(self, data: st.DataObject, whole: bool) -> None:
        session = data.draw(st.sampled_from([session for session in self.sessions if session.client]))
        assert session.client
        if whole:
            session.client.read()
        else:
            session.client.read_once()
        self._check(session, is_whole=whole)

    @precondition(lambda self: any(session.client for session in self.sessions))
    @rule(data=st.data(), reads_first=st.booleans())
    def drop(self, data: st.DataObject, reads_first: bool) -> None:
        session = data.draw(st.sampled_from([session for session in self.sessions if session.client]))
        assert session.client
        if reads_first:
            session.client.read()
            self._check(session, is_whole=True)
        if session.client.mark is None:  # it has not even read where it was
            self.sessions.remove(session)
        session.mark = session.client.leave()
        session.client = None

    @precondition(lambda self: any(not session.client for session in self.sessions))
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from([session for session in self.sessions if not session.client]))
        session.client = self.listening.follow(session.wish, session.mark)
        session.resets = 0

    @rule(seconds=st.sampled_from([1, 59, 61]))
    def pass_time(self, seconds: int) -> None:
        self.listening.clock.advance(seconds)

    @rule(seconds=st.sampled_from([59, 61]))
    def leave_all(self, seconds: int) -> None:
        """All go away, and something happens before one comes back."""
        for session in [session for session in self.sessions if session.client]:
            assert session.client
            session.client.read()
            self._check(session, is_whole=True)
            session.mark, session.client = session.client.leave(), None
        self.listening.clock.advance(seconds)
        self.happen(PRICES, 1)

    def _check(self, session: Session, *, is_whole: bool) -> None:
        client = session.client
        assert client
        if client.resets > session.resets:
            client.read()  # from there on it is up to date
            session.resets = client.resets
            session.expected, session.got = [], []
            client.runs.clear()
            return
        session.got += client.runs
        client.runs.clear()
        assert session.got == (session.expected if is_whole else session.expected[: len(session.got)])

    @invariant()
    def is_bounded(self) -> None:
        assert sum(len(kept.events) for kept in self.hub._kept.values()) == self.hub._count <= MOST


TestListening = ListeningMachine.TestCase
