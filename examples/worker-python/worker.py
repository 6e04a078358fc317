#!/usr/bin/env python3
"""A worker in Python: does the nodes of kind "wordcount" of all runs.

Needs psycopg 3 (Debian: python3-psycopg). Any number of workers may run:

    psql "$DATABASE_URL" -c "select pgexec.declare_kind('wordcount')"
    DATABASE_URL=postgres://… ./worker.py

SIGTERM ends it when the task in hand is done. A worker that is killed loses
nothing: another one takes its task when the lease is over.
"""

import json
import os
import select
import signal
import socket
import threading

import psycopg

KIND = "wordcount"
WORKER = f"{socket.gethostname()}-{os.getpid()}"
LEASE = float(os.environ.get("LEASE_SECONDS", "60"))
POLL_SECONDS = 5  # notifications come sooner, but may be lost


class PermanentError(Exception):
    """To try the task again would be of no use."""


def handle(task_input, idempotency_key, gone, used):
    """Does one task. It may be done twice, by another worker if this one dies: services that can deduplicate get
    the key, which is always the same. `gone` is set when nobody wants the result any more. `used` takes what the run is
    to be charged with, as the answer of a model says it; it counts also if the task fails after that."""
    if not isinstance(task_input, dict) or not isinstance(task_input.get("text"), str):
        raise PermanentError('the input has no "text"')
    gone.wait(task_input.get("seconds", 0))
    words = len(task_input["text"].split())
    used.update(input_tokens=words, cost_usd=words * 0.000001)
    return {"words": words, "key": idempotency_key}


def keep_lease(task_id, done, gone):
    """Extends the lease until the task is done."""
    while not done.wait(LEASE / 3):
        try:
            with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
                (until,) = conn.execute(
                    "select pgexec.extend(%s, %s, make_interval(secs => %s))", (task_id, WORKER, LEASE)
                ).fetchone()
        except psycopg.OperationalError:
            continue  # the lease is longer than one look
        if until is None:
            gone.set()
            return


def work(task_id, task_input, idempotency_key):
    """Does one task and returns the statement that says what came of it."""
    done, gone, used = threading.Event(), threading.Event(), {}
    keeper = threading.Thread(target=keep_lease, args=(task_id, done, gone))
    keeper.start()
    try:
        output = handle(json.loads(task_input), idempotency_key, gone, used)
        return "select pgexec.complete(%s, %s, %s, %s)", (task_id, WORKER, json.dumps(output), json.dumps(used))
    except Exception as error:  # whatever it is, the run is told
        permanent = isinstance(error, PermanentError)
        return (
            "select pgexec.fail(%s, %s, %s, permanent => %s, usage => %s)",
            (task_id, WORKER, str(error), permanent, json.dumps(used)),
        )
    finally:
        done.set()
        keeper.join()


class Worker:
    def __init__(self):
        self.answer = None  # what is to be said of the last task
        self.stopping = False
        # A signal ends a wait: its number is written here.
        self.woken, waker = socket.socketpair()
        self.woken.setblocking(False)
        waker.setblocking(False)
        self.waker = waker
        signal.set_wakeup_fd(waker.fileno())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)

    def stop(self, *_):
        self.stopping = True

    def wait(self, seconds, *files):
        select.select([self.woken, *files], [], [], seconds)

    def serve(self, conn):
        conn.execute("listen pgexec_task")
        print(f"{WORKER} serves {KIND}", flush=True)
        while True:
            if self.answer:  # said again after a lost connection: that is harmless
                try:
                    conn.execute(*self.answer)
                except psycopg.errors.ObjectNotInPrerequisiteState as error:
                    print(error, flush=True)  # somebody else has the task
                self.answer = None
            if self.stopping:
                return
            task = conn.execute(
                "select task_id, input::text, idempotency_key"
                " from pgexec.take(%s, %s, make_interval(secs => %s))",
                (KIND, WORKER, LEASE),
            ).fetchone()
            if task:
                self.answer = work(*task)
            else:
                self.wait(POLL_SECONDS, conn)

    def run(self):
        while not self.stopping or self.answer:
            try:
                with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
                    self.serve(conn)
            except psycopg.OperationalError as error:
                print(error, flush=True)
                self.wait(1)


if __name__ == "__main__":
    Worker().run()
