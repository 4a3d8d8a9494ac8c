"""A runtime folder whose tasks need no TensorFlow: its server is a few lines of plain sockets.

`task.py` and what it imports are the real ones; so are the processes, the pipes and the TCP bytes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from artf_cli import cluster

_TENSORFLOW = '''
import os, socket, struct, threading, types

__version__ = "0.fake"

# What the fake AR-gRPC says, where there is one.
STATUS = {"paths": {}, "rendezvous_bytes": 0, "stream_bytes_sent": 0, "stream_bytes_received": 0}

class NotFoundError(Exception): pass
class AbortedError(Exception): pass
errors = types.SimpleNamespace(NotFoundError=NotFoundError, AbortedError=AbortedError)

class Server:
    """The parameter server answers a count with that many bytes."""
    def __init__(self, cluster, job_name, task_index, protocol, config=None):
        if protocol == "grpc+none":
            raise NotFoundError("No server factory; the available factories are: [ GRPC_SERVER ]")
        self.protocol = protocol
        self.target = "grpc://" + cluster[job_name][task_index]
        self.ps = cluster["ps"][0].split(":")
        self.peer = None
        if job_name == "ps":
            self.listener = socket.create_server((self.ps[0], int(self.ps[1])))
            threading.Thread(target=self.accept, daemon=True).start()
    def accept(self):
        while True:
            peer = self.listener.accept()[0]
            threading.Thread(target=self.answer, args=(peer,), daemon=True).start()
    def answer(self, peer):
        while True:
            (count,) = struct.unpack("=Q", peer.recv(8, socket.MSG_WAITALL))
            peer.sendall(bytes(count))
    def pull(self, count):
        if self.peer is None:
            self.peer = socket.create_connection((self.ps[0], int(self.ps[1])))
        self.peer.sendall(struct.pack("=Q", count))
        STATUS["paths"]["ipv4:" + ":".join(self.ps)] = "shm"
        STATUS["rendezvous_bytes"] += count // int(os.environ.get("FAKE_SHARE", "1"))
        while count:
            count -= len(self.peer.recv(count))

train = types.SimpleNamespace(Server=Server)
compat = types.SimpleNamespace(v1=types.SimpleNamespace(train=train))
'''
_TRAIN = """
import os, time
from task import Task

class Fake(Task):
    def do_build(self, workers):
        return {"parameter_bytes": 1000}
    def do_initialise(self):
        assert self.index == 0
    calls = 0
    def do_train(self, steps):
        self.calls += 1
        if self.index == 0 and "FAKE_LOG" in os.environ:
            with open(os.environ["FAKE_LOG"], "a") as log:
                log.write(f"{self.server.protocol} {steps}\\n")
        begin = time.monotonic()
        for step in range(steps):
            if os.environ.get("FAKE_TRAVELS", "1") == "1":
                self.server.pull(1000)
            self.emit("progress", step=step + 1, loss=1.0 / (step + 1))
        if self.index == 1 and "FAKE_DEATH" in os.environ:
            raise OSError("the network fell over")
        repeated = str(self.calls) in os.environ.get("FAKE_REPEATED", "").split(",")
        return {"begin": begin, "end": begin + steps / 100, "repeated": int(repeated)}
    def do_evaluate(self):
        return {"accuracy": float(os.environ.get("FAKE_ACCURACY", "0.98"))}

Fake().serve_commands()
"""
_RECV = """
import os
from task import Task

class Fake(Task):
    sizes = []
    def do_case(self, size, tensors, seed):
        self.server.pull(size * tensors)
        self.sizes.append(size * tensors)
        return {"case": len(self.sizes) - 1}
    def log(self, what, case):
        with open(os.environ["FAKE_LOG"], "a") as log:
            log.write(f"{what} {self.sizes[case]} {self.server.protocol}\\n")
    def do_check(self, case):
        self.log("check", case)
    def do_warm(self, case):
        pass
    def do_report(self):
        answer = super().do_report()
        answer["warm_free_bytes"] = int(os.environ.get("FAKE_WARM", "0"))
        if self.bursts >= int(os.environ.get("FAKE_LOST", "99")):
            answer["fabrics"], answer["connections"] = {}, []
        return answer

    bursts = 0
    def do_burst(self, case, least, most, seconds):
        self.bursts += 1
        self.log("burst", case)
        for _ in range(3):
            self.server.pull(self.sizes[case])
        factor = 4 if self.server.protocol == "grpc" else 1
        return {"samples_us": [factor * (self.sizes[case] or 5) * k for k in (1, 2, 9)]}
    def do_cold(self, case):
        self.log("cold", case)
        self.server.pull(self.sizes[case])
        return {"samples_us": [100 * self.sizes[case]]}

Fake().serve_commands()
"""
_AR_GRPC = """
import tensorflow

def status():
    return tensorflow.STATUS
"""


def make_runtime(folder: Path, *, with_ar_grpc: bool = False) -> Path:
    """Fills `folder` with the fake runtime and returns it."""
    real = Path(cluster.__file__).with_name("runtime")
    tensorflow = folder / "tensorflow"
    (tensorflow / "python").mkdir(parents=True)
    for name in ("ports.py", "task.py", "tcp_info.py"):
        shutil.copyfile(real / name, folder / name)
    (tensorflow / "__init__.py").write_text(_TENSORFLOW)
    (tensorflow / "python" / "__init__.py").write_text("")
    if with_ar_grpc:
        (tensorflow / "python" / "ar_grpc.py").write_text(_AR_GRPC)
    (folder / "train_lenet.py").write_text(_TRAIN)
    (folder / "recv_worker.py").write_text(_RECV)
    return folder
