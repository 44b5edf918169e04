"""The table of targets: what is fed with arbitrary bytes, by name."""

from __future__ import annotations

from tests.fuzz import address, cron, delayed, entry, envelope, options, payload, resp, spec
from tests.fuzz.kit import Target, plain

TARGETS = {
    "envelope": Target(plain(envelope.check)),
    "delayed": Target(delayed.opened, max_bytes=2048, needs_server=True),
    "entry": Target(plain(entry.check), max_bytes=2048),
    "spec": Target(plain(spec.check)),
    "cron": Target(plain(cron.check), max_bytes=1200),
    "resp": Target(resp.opened, max_bytes=2048),
    "address": Target(plain(address.check), max_bytes=8192),
    "options": Target(plain(options.check), max_bytes=2048),
    "payload": Target(plain(payload.check)),
}
