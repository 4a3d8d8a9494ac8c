"""Writers and receivers of one variable, and what must hold of each value that is received.

Each element of a value is the value's version plus the element's index, so that bytes of two
versions show, and bytes that came to a wrong place, too.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Callable

import tensorflow as tf

from common.protocols import STOCK, STOCK_COLLISION
from common.sessions import cancelled_by_close, config, refused_after_close, task_device

PS, WORKERS = "ps:0", ("worker:0", "worker:1")
#: A receiver's session is closed and another one opened after so many steps.
RESTART = 40


class Ledger:
    """How many writes have begun and how many have ended: what is read lies between."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.begun = 0
        self.ended = 0

    @contextmanager
    def writing(self) -> Iterator[int]:
        """Yields the write's number; one that fails stays begun."""
        with self._lock:
            self.begun += 1
            number = self.begun
        yield number
        with self._lock:
            self.ended += 1


def index(words: int, kind: Any) -> Any:
    return tf.cast(tf.range(words), kind)


def versions(value: Any, words: int) -> Any:
    """The least and the greatest version among a value's elements, in two passes."""
    version = value - index(words, value.dtype)
    least = tf.reduce_min(version)
    with tf.control_dependencies([least]):
        return tf.stack([least, tf.reduce_max(value - index(words, value.dtype))])


def extremes(value: Any, words: int) -> Any:
    """`versions`, and at which elements they are."""
    version = value - index(words, value.dtype)
    at = tf.stack([tf.argmin(version), tf.argmax(version)])
    return tf.concat([versions(value, words), tf.cast(at, value.dtype)], 0)


def is_mixture(version: float, at: int, low: int, high: int) -> bool:
    """Whether element `at` of float64 has bytes of two of the versions from `low` to `high`.

    So it comes where the element is written between two sends, which may end at any byte.
    """
    words = [struct.pack("<d", number + at) for number in range(low, high + 1)]
    mixtures = (
        one[:cut] + other[cut:] for one in words for other in words for cut in range(1, len(one))
    )
    return struct.pack("<d", version + at) in mixtures


def variable(words: int, kind: Any, resource: bool) -> Any:
    once = tf.compat.v1.variable_scope("", reuse=tf.compat.v1.AUTO_REUSE)
    with tf.device(task_device(PS)), once:
        return tf.compat.v1.get_variable(
            "v", dtype=kind, initializer=lambda: index(words, kind), use_resource=resource
        )


class Client:
    """A graph and a session of its own on `target`; `make` returns a step to be called."""

    def __init__(self, target: str, make: Callable[[Any], Callable[..., Any]]) -> None:
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._session = tf.compat.v1.Session(target, config=config())
            self.step = make(self._session)

    def close(self) -> None:
        self._session.close()


class Hunt:
    """One kind of writing and reading; the threads of `parts` run until all was looked at."""

    name = ""
    #: Whether a value is one version; else each of its elements is for itself, and may be written
    #: while it is sent: the step returns `extremes`.
    whole = True
    resource = True
    kind = tf.int64
    #: Whether a session may be closed while its step is under way.
    closes_at_work = False

    def __init__(self, protocol: str, targets: dict[str, str], words: int, steps: int) -> None:
        self._protocol = protocol
        self.targets = targets
        self.words = words
        self.ledger = Ledger()
        self.seen = 0
        self.wrong: list[str] = []
        self.collisions = 0
        #: Steps over stock whose time was up, which may be of a collision, too.
        self.late: list[str] = []
        self._steps = steps
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def variable(self) -> Any:
        return variable(self.words, self.kind, self.resource)

    def prepare(self, session: Any) -> None:
        """Makes the variable; in a graph of its own."""
        session.run(self.variable().initializer)

    def parts(self) -> list[Callable[[], None]]:
        """What runs at the same time, each until `going` says no more."""
        raise NotImplementedError

    def last_look(self, session: Any) -> None:
        """What must hold of the variable once nobody writes."""

    def free(self, session: Any) -> None:
        """Ends what still waits for a step that failed."""

    @property
    def going(self) -> bool:
        return not self._ended.is_set()

    def look(
        self, low: int, least: float, most: float, high: int, places: Sequence[float] = ()
    ) -> None:
        """Counts a value that was read between `low` writes ended and `high` writes begun.

        `places` are the elements with the least and the greatest version, unless it is `whole`.
        """
        ends = (least, most)
        outside = [i for i, end in enumerate(ends) if not low <= end <= high]
        if not self.whole:
            # Such an element may have been written while it was sent.
            outside = [i for i in outside if not is_mixture(ends[i], int(places[i]), low, high)]
        with self._lock:
            if outside or (self.whole and least != most):
                self.wrong.append(f"versions {least} to {most}, between {low} and {high}")
            self.seen += 1
            if self.seen >= self._steps or len(self.wrong) > 10:
                self._ended.set()

    def _note(self, error: Exception) -> None:
        """Counts a collision of stock's; anything else is wrong."""
        if self._protocol == STOCK and STOCK_COLLISION in str(error):
            self.collisions += 1
        elif self._protocol == STOCK and isinstance(error, tf.errors.DeadlineExceededError):
            self.late.append(f"{error!r}: {error}")
        # After one there may be nothing to wait for.
        elif not (self.collisions or self.late) or not isinstance(error, tf.errors.OutOfRangeError):
            self.wrong.append(f"{error!r}: {error}")

    def _run(self, part: Callable[[], None]) -> None:
        try:
            part()
        except Exception as error:
            self._note(error)
        finally:
            self._ended.set()

    def run(self, halfway: Callable[[], None]) -> None:
        """Returns when all was looked at, something was wrong, or stock's ids collided."""
        with tf.Graph().as_default():
            tf.compat.v1.Session.reset(self.targets[PS])
            with tf.compat.v1.Session(self.targets[PS], config=config()) as session:
                self.prepare(session)
                threads = [
                    threading.Thread(target=self._run, args=(part,)) for part in self.parts()
                ]
                for thread in threads:
                    thread.start()
                while self.going and self.seen < self._steps // 2:
                    time.sleep(0.001)
                halfway()
                self._ended.wait()
                if self.collisions or self.late:
                    self.free(session)
                for thread in threads:
                    thread.join()
                if not self.collisions and not self.late and not self.wrong:
                    self.last_look(session)

    # --- parts that several hunts share ---

    def receive(self, worker: str, make: Callable[[Any], Callable[..., Any]]) -> None:
        """Steps that return the versions of a value that `worker` received."""
        client = Client(self.targets[worker], make)
        straggler: threading.Thread | None = None
        count = 0
        while self.going:
            low = self.ledger.ended
            least, most, *places = client.step()
            self.look(low, float(least), float(most), self.ledger.begun, places)
            count += 1
            if count % RESTART == 0:
                if self.closes_at_work:
                    straggler = threading.Thread(target=self._last_step, args=(client,))
                    straggler.start()
                client.close()
                if straggler is not None:
                    straggler.join()
                client = Client(self.targets[worker], make)
        client.close()

    def _last_step(self, client: Client) -> None:
        """A step whose session is being closed: a value, if it has one, is as good as any."""
        low = self.ledger.ended
        try:
            least, most = client.step()
            self.look(low, float(least), float(most), self.ledger.begun)
        except Exception as error:
            if not (cancelled_by_close(error) or refused_after_close(error)):
                self._note(error)

    def write(self, makes: list[Callable[[Any], Callable[..., Any]]]) -> None:
        """Writes one version after the other, by turns as the `makes` do."""
        clients = [Client(self.targets[PS], make) for make in makes]
        while self.going:
            for client in clients:
                with self.ledger.writing() as version:
                    client.step(version)
        for client in clients:
            client.close()
