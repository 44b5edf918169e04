"""What a server tells of itself by INFO, and whether a queue may live there."""

from __future__ import annotations

from chasquimq.errors import StoreError

CRASHING = ("8.2.0", "8.2.1")  # their XACKDEL takes the server down


def parse_info(info: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {key: value for key, _, value in lines if value}


def refuse_dangerous(facts: dict[str, str]) -> None:
    """StoreError for a server that would lose jobs or crash; of the sections server and memory."""
    if facts.get("server_name", "redis") == "redis" and facts.get("redis_version") in CRASHING:
        raise StoreError(
            f"Redis {facts['redis_version']} crashes on XACKDEL; upgrade to 8.6.2 or newer"
        )
    policy = facts.get("maxmemory_policy", "")
    if policy.startswith("allkeys-"):
        raise StoreError(
            f"this server evicts any key (maxmemory-policy {policy}): it would evict the queue "
            "with every job in it. Set maxmemory-policy noeviction, or use another server"
        )
