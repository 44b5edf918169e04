"""Nobody has to close anything: what a program leaves open at its end is closed for it."""

from __future__ import annotations

import pytest

from chasquimq.sync import GOODBYE_S
from tests.sync.counter import Counter, eventually

# How a program's main part ends, with a queue that was used and not closed.
ENDS = {
    "falls off its end": ("queue = open_queue(); queue.add('a', 1)", 0),
    "drops its queue": ("open_queue().add('a', 1)", 0),
    "closes": ("queue = open_queue(); queue.add('a', 1); queue.close()", 0),
    "uses a with block": ("with open_queue() as queue: queue.add('a', 1)", 0),
    "adds after closing": ("queue = open_queue(); queue.close(); queue.add('a', 1)", 0),
    "calls sys.exit": ("queue = open_queue(); queue.add('a', 1); sys.exit(3)", 3),
    "raises": ("queue = open_queue(); queue.add('a', 1); raise KeyError('its own')", 1),
    "has several queues": (
        "queues = [open_queue() for _ in range(3)]\n"
        "for queue in queues: queue.peek_dlq()\n"
        "queues[0].add('a', 1)",
        0,
    ),
}


LAST = """
def last(function):
    \"\"\"Have it run at exit behind ours, as if it had been registered before the import.\"\"\"
    hook = sys.modules["chasquimq.sync"]._at_exit
    atexit.unregister(hook)
    atexit.register(function)
    atexit.register(hook)

def say_what_is_left():
    say([thread.name for thread in threading.enumerate() if thread.name == "chasqui-sync"])

def add_too_late():
    try:
        queue.add("a", "too late")
    except ShutdownError as error:
        say(error)
"""


@pytest.mark.parametrize("end", ENDS)
def test_a_program_ends_cleanly_however_it_ends(end: str, counter: Counter) -> None:
    code, exit_code = ENDS[end]
    ended = counter.run(code)
    assert ended.code == exit_code
    assert counter.added() == [1]
    if end == "raises":
        assert ended.err.endswith("KeyError: 'its own'")
        assert ended.err.count("Traceback") == 1
    else:
        assert ended.err == ""
    eventually(lambda: not counter.ours())


def test_connections_are_closed_before_the_process_ends(any_counter: Counter) -> None:
    """By us, not by the system: what else runs at exit may take its time."""
    code = """
last(lambda: ask("all is closed"))
queue = open_queue()
queue.add("a", 1)
ask("open")
"""
    with any_counter.program(LAST + code) as program:
        program.until("open")
        assert len(any_counter.ours()) == 2
        program.go_on()
        program.until("all is closed")
        eventually(lambda: not any_counter.ours())
        program.go_on()
        program.end().cleanly()


def test_what_is_on_its_way_at_exit_is_finished(own_counter: Counter) -> None:
    """A thread that nobody waits for has handed its job over, and Redis is slow to answer."""
    code = """
queue = open_queue()
queue.add("first", 1)
ask("connected")
threading.Thread(target=queue.add, args=("on its way", 2), daemon=True).start()
thread = sys.modules["chasquimq.sync"]._loop_thread()
while not any(call.task for call in list(thread._calls)):
    time.sleep(0.001)
say("ending")
"""
    with own_counter.program(code) as program:
        program.until("connected")
        own_counter.redis.client_pause(1000, all=False)  # ms; writes only
        program.go_on()
        program.until("ending")
        program.end().cleanly()
    assert own_counter.added() == [1, 2]


def test_events_that_nobody_waits_for_are_written_at_exit(counter: Counter) -> None:
    code = "queue = open_queue(waiting_events=True)\nfor n in range(50): queue.add('a', n)"
    counter.run(code).cleanly()
    assert [event.name for event in counter.desk.events()] == ["waiting"] * 50


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_dead_server_does_not_hold_up_the_exit(how: str, own_counter: Counter) -> None:
    """Nothing is on its way: there is nothing to wait for."""
    with own_counter.program("queue = open_queue()\nqueue.add('a', 1)\nask('used')") as program:
        program.until("used")
        getattr(own_counter.server.server, how)()
        program.go_on()
        ended = program.end()
    assert ended.code == 0
    assert all(line.startswith("reconnecting to") for line in ended.err.splitlines())
    assert ended.took_s < GOODBYE_S


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_what_a_dead_server_does_not_answer_is_given_up(how: str, own_counter: Counter) -> None:
    """After five seconds and a little more, also by those who are still about to connect."""
    code = """
def add(queue):
    try:
        queue.add("a", 1)
    except ChasquiError as error:
        say(type(error).__name__)

queue, other = open_queue(), open_queue()
add(queue)
ask("used")
for one in (queue, queue, other):
    threading.Thread(target=add, args=(one,), daemon=True).start()
thread = sys.modules["chasquimq.sync"]._loop_thread()
while how == "pause" and len([call for call in list(thread._calls) if call.task]) < 3:
    time.sleep(0.001)
"""
    with own_counter.program(f"how = {how!r}\n{code}") as program:
        program.until("used")
        getattr(own_counter.server.server, how)()
        program.go_on()
        ended = program.end()
    assert ended.code == 0
    assert all(line.startswith("reconnecting to") for line in ended.err.splitlines())
    told = {"ShutdownError", "UnconfirmedError", "StoreUnavailableError"}
    assert set(ended.out) <= told  # those who were told in time: they are daemons
    assert ended.took_s < 2 * GOODBYE_S


def test_who_waits_for_a_result_does_not_hold_up_the_exit(any_counter: Counter) -> None:
    code = """
def wait():
    try:
        queue.wait_for_result("never", timeout=3600, poll_interval=3600)
    except ShutdownError:
        say("told")

queue = open_queue()
thread = threading.Thread(target=wait, daemon=True)
thread.start()
last(thread.join)
ask("waits")
"""
    with any_counter.program(LAST + code) as program:
        program.until("waits")
        eventually(lambda: any(c["cmd"] == "xread" for c in any_counter.redis.client_list()))
        program.go_on()
        assert program.end().cleanly() == ["told"]
    eventually(lambda: not any_counter.ours())


def test_threads_that_add_until_the_end_are_believed(counter: Counter) -> None:
    """Each add that returned is in, once; each that was refused is not."""
    code = """
def add(number):
    n = 0
    while True:
        data = [number, n]
        try:
            queue.add("a", data)
        except ShutdownError:
            os.write(2, f"refused {data}\\n".encode())
            return
        say(data)
        n += 1

queue = open_queue()
for number in range(4):
    threading.Thread(target=add, args=(number,), daemon=True).start()
time.sleep(0.3)
"""
    ended = counter.run(code)
    assert ended.code == 0
    lines = ended.err.splitlines()
    assert all(line.startswith("refused") for line in lines), ended.err
    added = [str(data) for data in counter.added()]
    assert len(added) == len(set(added))
    assert set(ended.out) <= set(added)
    assert not {line.removeprefix("refused ") for line in lines} & set(added)
    assert len(added) - len(ended.out) <= 4  # accepted, and cut off before they could say so
    eventually(lambda: not counter.ours())


def test_threads_go_on_after_the_main_one_has_ended(counter: Counter) -> None:
    """With a host name to look up: an executor would take no work any more."""
    code = """
def add():
    threading.main_thread().join()
    for n in range(10):
        open_queue().add("a", n)

for _ in range(3):
    threading.Thread(target=add).start()
"""
    url = counter.server.url.replace("127.0.0.1", "localhost")
    assert "localhost" in url
    counter.run(code, url).cleanly()
    assert sorted(counter.added()) == sorted([*range(10)] * 3)
    eventually(lambda: not counter.ours())


def test_functions_that_run_at_exit_may_add(any_counter: Counter) -> None:
    """Those that were registered after the import; the others are told why not."""
    code = """
last(add_too_late)
last(say_what_is_left)
queue = open_queue()
atexit.register(queue.add, "a", "in time")
"""
    [left, told] = any_counter.run(LAST + code).cleanly()
    assert told.startswith("CMQ-005: the interpreter is ending")
    assert left == "[]"
    assert any_counter.added() == ["in time"]


def test_who_begins_too_late_is_told_as_well(any_counter: Counter) -> None:
    [told] = any_counter.run(LAST + "last(add_too_late)\nqueue = open_queue()").cleanly()
    assert told.startswith("CMQ-005: the interpreter is ending")
    assert any_counter.added() == []


def test_who_comes_while_the_queues_are_being_closed_is_told(any_counter: Counter) -> None:
    """Or it would open again what was just closed, and nobody would answer it."""
    code = """
queue = open_queue()
queue.add("a", 1)
thread = sys.modules["chasquimq.sync"]._loop_thread()
held, go_on = threading.Event(), threading.Event()
thread._hand_over(lambda: held.set() or go_on.wait())
held.wait()
thread.tell()
late = threading.Thread(target=add_too_late)
late.start()
while not thread._calls:
    time.sleep(0.001)
go_on.set()
late.join()
"""
    [told] = any_counter.run(LAST + code).cleanly()
    assert told.startswith("CMQ-005: the interpreter is ending")
    assert any_counter.added() == [1]


def test_who_comes_behind_the_last_turn_of_the_loop_is_told(any_counter: Counter) -> None:
    """It takes calls until it is closed, and runs them no more."""
    code = """
queue = open_queue()
queue.add("a", 1)
thread = sys.modules["chasquimq.sync"]._loop_thread()
late = threading.Thread(target=add_too_late)
close = thread._loop.close

def close_late():
    late.start()
    while not thread._loop._ready:
        time.sleep(0.001)
    close()

thread._loop.close = close_late
thread.tell()
thread.join(60)
late.join()
"""
    [told] = any_counter.run(LAST + code).cleanly()
    assert told.startswith("CMQ-005: the interpreter is ending")
    assert any_counter.added() == [1]


def test_who_uses_nothing_has_no_thread(any_counter: Counter) -> None:
    code = "queue = open_queue()\nsay(repr(queue))\nsay(threading.active_count())"
    assert any_counter.run(code).cleanly()[1:] == ["1"]
    assert not any_counter.ours()


def test_a_lookup_that_hangs_does_not_hold_up_the_exit(any_counter: Counter) -> None:
    """Who waits for it is cut off, and the thread ends."""
    code = """
import socket

def peek():
    try:
        queue.peek_dlq()
    except ShutdownError:
        told.set()

last(say_what_is_left)
told, never = threading.Event(), threading.Event()
last(told.wait)
socket.getaddrinfo = lambda *args, **options: never.wait()
queue = open_queue(redis_url="redis://no.such.host:1")
threading.Thread(target=peek, daemon=True).start()
thread = sys.modules["chasquimq.sync"]._loop_thread()
while not any(call.task for call in list(thread._calls)):
    time.sleep(0.001)
"""
    assert any_counter.run(LAST + code).cleanly() == ["[]"]


def test_a_provider_that_hangs_does_not_hold_up_the_exit(any_counter: Counter) -> None:
    """Its thread is stuck with it; nobody waits for that one, not even who comes too late."""
    code = """
def provider(host):
    say("asked")
    never.wait()

last(add_too_late)
never = threading.Event()
queue = open_queue(credential_provider=provider)
threading.Thread(target=queue.peek_dlq, daemon=True).start()
thread = sys.modules["chasquimq.sync"]._loop_thread()
while not any(call.task for call in list(thread._calls)):
    time.sleep(0.001)
"""
    [asked, told] = any_counter.run(LAST + code).cleanly()
    assert asked == "asked"
    assert told.startswith("CMQ-005: the interpreter is ending")
