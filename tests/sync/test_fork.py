"""A queue may be used on both sides of a fork: a child touches nothing that its parent has open."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.store.test_tls import Authority, secured
from tests.sync.counter import Counter, eventually

# What a child does, with the queue that its parent has used.
CHILDREN = {
    "adds": "queue.add('child', 'child')",
    "adds and closes": "queue.add('child', 'child'); queue.close()",
    "adds by a queue of its own": "open_queue().add('child', 'child')",
    "adds in a thread": (
        "it = threading.Thread(target=queue.add, args=('child', 'child')); it.start(); it.join()"
    ),
    "adds over a host name": "named.add('child', 'child')",
    "only closes": "queue.close()",
    "drops the queue": "del queue; gc.collect()",
    "does nothing": "pass",
}
ENDINGS = {"os._exit": "os._exit(7)", "sys.exit": "sys.exit(7)"}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("child", CHILDREN)
def test_a_child_does_not_disturb_its_parent(child: str, ending: str, any_counter: Counter) -> None:
    code = f"""
queue = open_queue()
named = open_queue(redis_url={any_counter.server.url.replace("127.0.0.1", "localhost")!r})
queue.add("parent", "before")
named.peek_dlq()
ask("used")
pid = os.fork()
if not pid:
    {CHILDREN[child]}
    {ENDINGS[ending]}
assert wait_for_child(pid) == 7
queue.add("parent", "after")
named.peek_dlq()
ask("used again")
"""
    with any_counter.program(code) as program:
        program.until("used")
        before = any_counter.ours()
        assert len(before) == 3
        program.go_on()
        program.until("used again")
        eventually(lambda: any_counter.ours() == before)  # the child's are gone, these are not
        program.go_on()
        program.end().cleanly()
    its = ["child"] if "adds" in child else []
    assert any_counter.added() == ["before", *its, "after"]
    eventually(lambda: not any_counter.ours())


# Each makes children, of which each adds 20 jobs, while four threads of the parent add.
FORKS = {
    "os.fork": """
pids = []
for number in range(CHILDREN):
    pid = os.fork()
    if not pid:
        work(f"child {number}")
        os._exit(0) if number % 2 else sys.exit(0)
    pids.append(pid)
assert [wait_for_child(pid) for pid in pids] == [0] * CHILDREN
""",
    "multiprocessing": """
context = multiprocessing.get_context("fork")
children = [context.Process(target=work, args=(f"child {n}",)) for n in range(CHILDREN)]
for child in children:
    child.start()
for child in children:
    child.join(30)
assert [child.exitcode for child in children] == [0] * CHILDREN
""",
    "from threads": """
def fork(number):
    pid = os.fork()
    if not pid:
        work(f"child {number}")
        os._exit(0)
    codes.append(wait_for_child(pid))

codes = []
threads = [threading.Thread(target=fork, args=(number,)) for number in range(CHILDREN)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert codes == [0] * CHILDREN
""",
    "child of a child": """
def descend(number):
    pid = os.fork()
    if not pid:
        work(f"child {number}")
        if number + 1 < CHILDREN:
            descend(number + 1)
        sys.exit(0)
    code = wait_for_child(pid)
    assert code == 0, code

descend(0)
""",
}


@pytest.mark.parametrize("fork", FORKS)
def test_every_job_comes_in_once_while_processes_fork(fork: str, counter: Counter) -> None:
    code = f"""
CHILDREN = 8

def work(who):
    for n in range(20):
        queue.add("a", [who, n])

def hammer(who):
    n = 0
    while not stop.is_set():
        queue.add("a", [who, n])
        n += 1
    say(f"{{who}}: {{n}}")

queue = open_queue()
queue.add("a", ["parent", 0])
ask("used")
stop = threading.Event()
hammers = [threading.Thread(target=hammer, args=(f"thread {{n}}",)) for n in range(4)]
for thread in hammers:
    thread.start()
{FORKS[fork]}
stop.set()
for thread in hammers:
    thread.join()
ask("done")
"""
    with counter.program(code) as program:
        program.until("used")
        before = counter.ours()
        program.go_on()
        program.until("done")
        eventually(lambda: counter.ours() == before)
        program.go_on()
        said = program.end().cleanly()
    expected = [["parent", 0]]
    expected += [[f"child {number}", n] for number in range(8) for n in range(20)]
    for line in said:
        who, _, count = line.partition(": ")
        expected += [[who, n] for n in range(int(count))]
    assert len(said) == 4
    assert sorted(counter.added()) == sorted(expected)


def test_a_process_forks_while_it_connects_and_over_again(counter: Counter) -> None:
    """Children of every moment: their parent's threads open and close queues all the time."""
    code = """
def churn(number):
    n = 0
    while not stop.is_set():
        with open_queue() as queue:
            queue.add("a", [number, n])
        n += 1
    say(f"{number}: {n}")

stop = threading.Event()
threads = [threading.Thread(target=churn, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
queue = open_queue()
for number in range(10, 30):
    pid = os.fork()
    if not pid:
        queue.add("a", [number, 0])
        sys.exit(0)
    assert wait_for_child(pid) == 0
stop.set()
for thread in threads:
    thread.join()
"""
    said = counter.run(code).cleanly()
    expected = [[number, 0] for number in range(10, 30)]
    for line in said:
        number, _, count = line.partition(": ")
        expected += [[int(number), n] for n in range(int(count))]
    assert len(said) == 4
    assert sorted(counter.added()) == sorted(expected)
    eventually(lambda: not counter.ours())


def test_who_forks_while_it_waits_is_not_left_waiting(any_counter: Counter) -> None:
    """In a signal handler: the child goes on where its parent waits, and nobody would answer it."""
    code = """
def fork(*_):
    pids.append(os.fork())

pids = []
signal.signal(signal.SIGUSR1, fork)
queue = open_queue()
queue.add("a", "before")
say("waits")
try:
    queue.wait_for_result("never", timeout=5)
except ChasquiError as error:
    say(f"{'parent' if pids[0] else 'child'}: {type(error).__name__}")
queue.add("a", "parent" if pids[0] else "child")
if pids[0]:
    assert wait_for_child(pids[0]) == 0
"""
    with any_counter.program(code) as program:
        program.until("waits")
        eventually(lambda: any(c["cmd"] == "xread" for c in any_counter.redis.client_list()))
        program.signal("SIGUSR1")
        said = program.end().cleanly()
    assert sorted(said) == ["child: ShutdownError", "parent: ResultTimeoutError"]
    assert sorted(any_counter.added()) == ["before", "child", "parent"]


def test_who_forks_while_it_waits_and_exits_does_not_wake_its_parent(any_counter: Counter) -> None:
    code = """
def fork(*_):
    if os.fork():
        return
    atexit.register(lambda: say(len(forsaken[0]._loop._ready)))
    sys.exit(3)

forsaken = sys.modules["chasquimq.sync"]._forsaken
signal.signal(signal.SIGUSR1, fork)
queue = open_queue()
say("waits")
try:
    queue.wait_for_result("never", timeout=3)
except TimeoutError:
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 3
"""
    with any_counter.program(code) as program:
        program.until("waits")
        eventually(lambda: any(c["cmd"] == "xread" for c in any_counter.redis.client_list()))
        program.signal("SIGUSR1")
        assert program.end().cleanly() == ["0"]


async def test_a_child_has_a_tls_connection_of_its_own(
    any_counter: Counter, tmp_path: Path
) -> None:
    """And a context of its own: another thread may be at work with the parent's as it forks."""
    code = """
queue = open_queue()
queue.add("a", "before")
ask("used")
context = queue._here()._dialer._ssl
pid = os.fork()
if not pid:
    queue.add("a", "child")
    assert queue._here()._dialer._ssl is not context
    sys.exit(0)
assert wait_for_child(pid) == 0
queue.add("a", "after")
assert queue._here()._dialer._ssl is context
ask("used again")
"""

    def work(url: str) -> None:
        with any_counter.program(code, url) as program:
            program.until("used")
            before = any_counter.ours()
            program.go_on()
            program.until("used again")
            eventually(lambda: any_counter.ours() == before)
            program.go_on()
            program.end().cleanly()

    authority = Authority(tmp_path)
    files = authority.certificate("localhost", "127.0.0.1")
    async with secured(any_counter.server.server, files) as port:
        await asyncio.to_thread(work, f"rediss://localhost:{port}?ssl_ca_certs={authority.ca}")
    assert any_counter.added() == ["before", "child", "after"]


def test_a_spawned_child_gets_a_queue_as_an_argument(any_counter: Counter) -> None:
    code = """
def work(queue):
    queue.add("a", f"child, {queue.add('a', 1) and queue.name}")

if __name__ == "__main__":
    queue = open_queue()
    queue.add("a", "parent")
    child = multiprocessing.get_context("spawn").Process(target=work, args=(queue,))
    child.start()
    child.join(30)
    assert child.exitcode == 0
"""
    any_counter.run(code).cleanly()
    assert any_counter.added() == ["parent", 1, f"child, {any_counter.name}"]


def test_a_fork_that_python_does_not_see_is_noticed(any_counter: Counter) -> None:
    """Some servers fork in C, and run no hooks."""
    code = """
import ctypes
queue = open_queue()
queue.add("a", "before")
ask("used")
pid = ctypes.PyDLL(None).fork()
if not pid:
    queue.add("a", "child")
    os._exit(0)
assert wait_for_child(pid) == 0
queue.add("a", "after")
ask("used again")
"""
    with any_counter.program(code) as program:
        program.until("used")
        before = any_counter.ours()
        program.go_on()
        program.until("used again")
        eventually(lambda: any_counter.ours() == before)
        program.go_on()
        program.end().cleanly()
    assert any_counter.added() == ["before", "child", "after"]
