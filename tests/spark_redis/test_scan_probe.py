"""What the driver sees of a stream is what is there."""

from __future__ import annotations

import random

import pytest

from chasquimq.address import read_url
from chasquimq.spark.client import Client
from chasquimq.spark.place import LAST_SEQ, Place, Range
from chasquimq.spark.read import plan
from chasquimq.spark.read.part import Part
from chasquimq.spark.read.piece import Look
from chasquimq.spark.read.probe import AT_ONCE, Prober
from tests.servers import DialectServer
from tests.spark_redis.reading import Reading
from tests.unit.spark.model_stream import NOW, ModelStream, spread, stamped


def fill(server: DialectServer, key: str, places: list[Place], body: bytes = b"x") -> ModelStream:
    stream = ModelStream(places)
    with server.client().pipeline(transaction=False) as pipe:
        for place in stream.places:
            pipe.xadd(key, {"d": body}, id=str(place))
        pipe.execute()
    return stream


def by_hand(dice: random.Random) -> list[Place]:
    """Ids as no server makes them."""
    some = [Place(dice.randrange(3), dice.randrange(1, 50)) for _ in range(40)]
    return [*some, Place(7, LAST_SEQ), Place(8, 0), Place(LAST_SEQ, 3), Place(LAST_SEQ, LAST_SEQ)]


SHAPES = {
    "a second": lambda dice: stamped(spread(dice, 700, 0, 1000)),
    "a few ms": lambda dice: stamped(spread(dice, 700, 0, 4)),
    "one ms": lambda dice: [Place(NOW, seq) for seq in range(700)],
    "by hand": by_hand,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_server_tells_what_the_model_tells(
    dialect_server: DialectServer, queue_name: str, shape: str
) -> None:
    dice = random.Random(shape)
    stream = fill(dialect_server, queue_name, SHAPES[shape](dice))
    places = [*stream.places, Place(0, 0), Place(5, 5), Place(NOW + 500, 0).before]
    looks = [
        Look(Range(after, upto), dice.random() < 0.5, dice.choice((1, 2, 3, 16, 100, 600)))
        for after, upto in (sorted(dice.sample(places, 2)) for _ in range(150))
    ]
    with Client(read_url(dialect_server.url), plan.SCRIPTS) as client:
        assert Prober(client, queue_name.encode())(looks) == stream.probe(looks)


def test_large_bodies_are_not_walked_over(dialect_server: DialectServer, queue_name: str) -> None:
    stream = fill(
        dialect_server, queue_name, [Place(NOW + ms, 0) for ms in range(40)], b"x" * 200_000
    )
    with Client(read_url(dialect_server.url), plan.SCRIPTS) as client:
        [end] = Prober(client, queue_name.encode())([Look(stream.all_of_it, False, 16)])
    assert 2 <= end.many < 6
    assert not end.whole
    assert end.near == stream.places[0]


def test_a_write_holds_so_many_looks_that_others_need_not_wait() -> None:
    class Counting(Client):
        def __init__(self) -> None:
            self.writes: list[int] = []

        def ask_each(self, commands: object) -> list[object]:
            self.writes.append(len(commands))  # type: ignore[arg-type]
            return [[0] for _ in range(self.writes[-1])]

    client = Counting()
    looks = [
        Look(Range(Place(0, 0), Place(9, 9)), False, most) for most in (16,) * 300 + (512,) * 9
    ]
    Prober(client, b"key")(looks)
    assert sum(client.writes) == len(looks)
    assert max(client.writes) <= AT_ONCE // 16
    assert client.writes[-1] <= AT_ONCE // 512


def test_a_burst_is_shared_out(dialect_server: DialectServer, queue_name: str) -> None:
    dice = random.Random(7)
    times = [*spread(dice, 1_000), *spread(dice, 9_000, 40_000_000, 1_000)]
    key = f"{{chasqui:{queue_name}}}:stream"
    stream = fill(dialect_server, key, stamped(times))
    parts = Reading(dialect_server, queue_name, minPartitions=5).parts()
    sizes = [len(Reading(dialect_server, queue_name).rows_of(part)) for part in parts]
    assert sum(sizes) == len(stream.places) == 10_000
    assert len(parts) == 5
    assert max(sizes) < 2 * 2_000
    assert all(isinstance(part, Part) for part in parts)
