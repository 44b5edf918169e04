"""The servers that a command looks at: one, or those nodes of a cluster that matter to it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from chasquimq import topology, wire
from chasquimq.address import Address
from chasquimq.errors import StoreUnavailableError


class Node(NamedTuple):
    address: Address
    queues: tuple[str, ...]  # of those that were named: they lie here
    nowhere: wire.Keys  # of a queue that is not there, and would lie here
    name: str | None = None  # where it is one of several


def nodes_of(address: Address, queues: Sequence[str] = ()) -> list[Node]:
    """Those that hold the named queues, or all."""
    if address.kind != "cluster":
        return [Node(address, tuple(queues), _made_up())]
    slots = topology.read_slots(address)
    owners = {queue: slots.owner(_key(wire.Keys(queue))) for queue in queues}
    for queue, owner in owners.items():
        if owner is None:
            raise StoreUnavailableError(f"no node of {address} serves queue {queue!r} just now")
    found = []
    for endpoint in slots.masters:
        here = tuple(queue for queue, owner in owners.items() if owner == endpoint)
        if here or not queues:
            nowhere = _made_up()
            while slots.owner(_key(nowhere)) != endpoint:
                nowhere = _made_up()
            found.append(Node(address.node(endpoint), here, nowhere, str(endpoint)))
    return found


def _made_up() -> wire.Keys:
    return wire.Keys(f"doctor-{uuid.uuid4().hex[:12]}")


def _key(keys: wire.Keys) -> str:
    return keys.stream.decode()
