"""What the hunt for torn values does to a variable: assignments, asynchronous SGD, forwarding."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable

import tensorflow as tf

from common.sessions import task_device
from recv.hunt import PS, WORKERS, Hunt, extremes, index, versions


class Assign(Hunt):
    """A resource variable is assigned, both from its own task and from another one."""

    name = "assign, resource variable"
    closes_at_work = True

    def _assign_from(self, task: str) -> Callable[[Any], Callable[..., Any]]:
        def make(session: Any) -> Callable[..., Any]:
            version = tf.compat.v1.placeholder(self.kind, [])
            with tf.device(task_device(task)):
                value = index(self.words, self.kind) + version
            with tf.device(task_device(PS)):
                update = tf.compat.v1.assign(self.variable(), value).op
            step: Callable[..., Any] = session.make_callable(update, [version])
            return step

        return make

    def _received(self, worker: str) -> Callable[[Any], Callable[..., Any]]:
        def make(session: Any) -> Callable[..., Any]:
            with tf.device(task_device(PS)):
                sent = self.variable().read_value()
            with tf.device(task_device(worker)):
                got = tf.identity(sent)
                step: Callable[..., Any] = session.make_callable(versions(got, self.words))
            return step

        return make

    def parts(self) -> list[Callable[[], None]]:
        makes = [self._assign_from(PS), self._assign_from(WORKERS[1])]
        return [
            partial(self.write, makes),
            *(partial(self.receive, worker, self._received(worker)) for worker in WORKERS),
        ]


class AssignByTurns(Assign):
    """A reference variable, whose buffer every write goes into, is written and read by turns.

    Who has the token may use the variable. A receiver gives it back as soon as it has the value,
    and looks at the value again later, while a writer is at work: what came is the receiver's own.
    """

    name = "assign, reference variable"
    resource = False
    closes_at_work = False

    def _token(self) -> Any:
        with tf.device(task_device(PS)):
            return tf.queue.FIFOQueue(1, tf.int32, [[]], shared_name="token")

    def prepare(self, session: Any) -> None:
        super().prepare(session)
        session.run(self._token().enqueue(0))

    def free(self, session: Any) -> None:
        session.run(self._token().close())

    def _assign_from(self, task: str) -> Callable[[Any], Callable[..., Any]]:
        def make(session: Any) -> Callable[..., Any]:
            version = tf.compat.v1.placeholder(self.kind, [])
            queue = self._token()
            with tf.device(task_device(task)):
                value = index(self.words, self.kind) + version
            with tf.device(task_device(PS)):
                token = queue.dequeue()
                with tf.control_dependencies([token]):
                    update = tf.compat.v1.assign(self.variable(), value).op
                with tf.control_dependencies([update]):
                    done = queue.enqueue(token)
            step: Callable[..., Any] = session.make_callable(done, [version])
            return step

        return make

    def _received(self, worker: str) -> Callable[[Any], Callable[..., Any]]:
        def make(session: Any) -> Callable[..., Any]:
            queue = self._token()
            with tf.device(task_device(PS)):
                token = queue.dequeue()
                with tf.control_dependencies([token]):
                    sent = self.variable().read_value()
            with tf.device(task_device(worker)):
                got = tf.identity(sent)
                first = versions(got, self.words)
            with tf.device(task_device(PS)), tf.control_dependencies([got]):
                back = queue.enqueue(token)
            with tf.device(task_device(worker)), tf.control_dependencies([back]):
                again = versions(got, self.words)
                both = tf.stack([first, again])
                seen = tf.stack([tf.reduce_min(both), tf.reduce_max(both)])
            step: Callable[..., Any] = session.make_callable(seen)
            return step

        return make


class AssignUnordered(Assign):
    """The same without the token: what TensorFlow does not promise, and the hunt must find."""

    name = "no order"
    resource = False
    closes_at_work = False


class Descent(Hunt):
    """Asynchronous SGD: each worker pulls the variable and pushes a gradient made of what came.

    A gradient adds one to each element, if what was pulled is one version; else it does damage that
    stays.
    """

    name = "asynchronous SGD, resource variable"
    kind = tf.float64

    def gradient(self, got: Any) -> Any:
        version = got - index(self.words, self.kind)
        return version[0] - version - 1.0

    def _step_on(self, worker: str) -> Callable[[Any], Callable[..., Any]]:
        def make(session: Any) -> Callable[..., Any]:
            look = versions if self.whole else extremes
            optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0, use_locking=True)
            trained = self.variable()
            with tf.device(task_device(PS)):
                sent = trained.read_value()
            with tf.device(task_device(worker)):
                got = tf.identity(sent)
                seen, gradient = look(got, self.words), self.gradient(got)
            update = optimizer.apply_gradients([(gradient, trained)])
            step = session.make_callable([seen, update])

            def counted() -> Any:
                with self.ledger.writing():
                    return step()[0]

            return counted

        return make

    def parts(self) -> list[Callable[[], None]]:
        return [partial(self.receive, worker, self._step_on(worker)) for worker in WORKERS]

    def last_look(self, session: Any) -> None:
        """Every gradient has come once, and whole."""
        least, most = session.run(versions(self.variable().read_value(), self.words)).tolist()
        if not least == most == self.ledger.begun:
            self.wrong.append(f"{self.ledger.begun} updates left {least} to {most}")


class DescentInPlace(Descent):
    """The same with a reference variable: its readers may see an update halfway.

    So each element is looked at for itself, and gradients are not made of what came; they lock out
    each other, so none may be lost.
    """

    name = "asynchronous SGD, reference variable"
    whole = False
    resource = False

    def gradient(self, got: Any) -> Any:
        with tf.control_dependencies([got]):
            return tf.fill([self.words], tf.constant(-1.0, self.kind))


def add_in_place(value: Any, row: Any) -> Any:
    """Writes into the vector's own buffer, whoever else holds it."""
    as_row = tf.reshape(value, [1, -1])
    return tf.reshape(tf.raw_ops.InplaceAdd(x=as_row, i=[0], v=row), [-1])


class Forwarding(Hunt):
    """Operations that write into their input's buffer, which was sent before.

    AddV2 takes the buffer over if nobody else holds it, so a transfer under way must. InplaceAdd
    writes in any case, so it waits until the receiver has the value: what came is the receiver's.
    """

    name = "in-place forwarding"

    def _chain(self, worker: str) -> Callable[[Any], Callable[..., Any]]:
        def make(session: Any) -> Callable[..., Any]:
            version = tf.compat.v1.placeholder(self.kind, [])
            received: list[tuple[int, Any]] = []
            with tf.device(task_device(PS)):
                start = index(self.words, self.kind) + version
                one_row = tf.ones([1, self.words], self.kind)
            for in_place in (False, True):
                with tf.device(task_device(PS)):
                    value = start + 0
                for length in range(3):
                    with tf.device(task_device(PS)):
                        if length and in_place:
                            with tf.control_dependencies([received[-1][1]]):
                                value = add_in_place(value, one_row)
                        elif length:
                            value = value + 1
                    with tf.device(task_device(worker)):
                        received.append((length, tf.identity(value)))
            with (
                tf.device(task_device(worker)),
                tf.control_dependencies([got for _, got in received]),
            ):
                seen = tf.stack([versions(got - length, self.words) for length, got in received])
                ends = tf.stack([tf.reduce_min(seen), tf.reduce_max(seen)])
            step = session.make_callable(ends, [version])

            def numbered() -> Any:
                with self.ledger.writing() as number:
                    least, most = step(number)
                    # This step's own version, whatever others have begun.
                    if least != number or most != number:
                        self.wrong.append(f"versions {least} to {most} instead of {number}")
                return least, most

            return numbered

        return make

    def prepare(self, session: Any) -> None:
        """It has no variable."""

    def parts(self) -> list[Callable[[], None]]:
        return [partial(self.receive, worker, self._chain(worker)) for worker in WORKERS]


HUNTS: tuple[type[Hunt], ...] = (Assign, AssignByTurns, Descent, DescentInPlace, Forwarding)
