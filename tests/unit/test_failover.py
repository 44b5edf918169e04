"""Who is confirmed as the right server, by what Sentinels and nodes say."""

from __future__ import annotations

from chasquimq.address import Endpoint
from chasquimq.failover import STALE_S, Nodes, Sentinels
from chasquimq.topology import Told, View

S1, S2, S3 = (Endpoint(f"s{number}", 26379) for number in (1, 2, 3))
OLD, NEW = Endpoint("a", 6379), Endpoint("b", 6379)
SLOT = 7


def sentinels(*told: tuple[Endpoint, int, Endpoint], known: Told | None = None) -> Endpoint | None:
    opinions = Sentinels(3)
    if known is not None:
        for one in (S1, S2):
            opinions.hear(one, known, 0.0)
        assert opinions.confirmed(0.0) == known
    for place, epoch, master in told:
        opinions.hear(place, Told(epoch, master), 1.0)
    confirmed = opinions.confirmed(1.0)
    return confirmed and confirmed.master


def test_more_than_half_of_the_sentinels_confirm_a_master() -> None:
    assert sentinels((S1, 1, OLD)) is None
    assert sentinels((S1, 1, OLD), (S2, 1, OLD)) == OLD
    assert sentinels((S1, 0, OLD), (S2, 0, NEW), (S3, 0, NEW)) == NEW  # without epochs


def test_one_sentinel_that_tells_of_a_later_failover_is_believed() -> None:
    assert sentinels((S1, 2, NEW), known=Told(1, OLD)) == NEW
    assert sentinels((S1, 1, NEW), known=Told(1, OLD)) is None
    assert sentinels((S1, 2, NEW), (S2, 1, OLD), (S3, 1, OLD), known=Told(1, OLD)) == NEW


def test_a_sentinel_that_was_left_behind_changes_nothing() -> None:
    assert sentinels((S1, 1, OLD), known=Told(2, NEW)) is None
    assert sentinels((S1, 1, OLD), (S2, 2, NEW), known=Told(2, NEW)) is None


def test_what_was_heard_long_ago_does_not_count() -> None:
    opinions = Sentinels(3)
    opinions.hear(S1, Told(5, NEW), 0.0)
    opinions.hear(S2, Told(1, OLD), STALE_S)
    opinions.hear(S3, Told(1, OLD), STALE_S)
    assert opinions.confirmed(STALE_S) == Told(1, OLD)


def view(whose: bytes, node: Endpoint, epoch: int, *, named: bool = True) -> View:
    return View(whose, ((0, 16_383, node, epoch),), (node,), named)


def owner(*views: View) -> Endpoint | None:
    nodes = Nodes()
    for one in views:
        nodes.hear(one, 1.0)
    return nodes.owner(SLOT, 1.0)


def test_two_nodes_confirm_the_owner_of_a_slot() -> None:
    assert owner(view(b"1", NEW, 2)) is None
    assert owner(view(b"1", NEW, 2), view(b"1", NEW, 2)) is None  # one node, asked twice
    assert owner(view(b"1", NEW, 2), view(b"2", NEW, 2)) == NEW


def test_two_nodes_that_know_less_than_a_third_confirm_nobody() -> None:
    assert owner(view(b"1", OLD, 1), view(b"2", OLD, 1), view(b"3", NEW, 2)) is None
    assert owner(view(b"1", OLD, 1), view(b"2", NEW, 2), view(b"3", NEW, 2)) == NEW


def test_a_node_that_calls_none_by_a_host_does_not_count() -> None:
    vague = [view(name, NEW, 2, named=False) for name in (b"1", b"2")]
    assert owner(*vague) is None


def test_a_slot_that_nobody_serves_has_no_owner() -> None:
    nodes = Nodes()
    for whose in (b"1", b"2"):
        nodes.hear(View(whose, ((0, 5, OLD, 1),), (OLD,)), 0.0)
    assert nodes.owner(SLOT, 0.0) is None
    assert nodes.owner(5, 0.0) == OLD
    assert nodes.owner(5, STALE_S) is None
