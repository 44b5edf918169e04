"""The machine's specs: written, put aside, taken up, removed, broken, looked at and fired."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from chasquimq.store.specs import Fired, Seen
from tests.model.book import DUE, NEVER, WHO, Spec
from tests.model.holding import Consumers
from tests.model.machine import key, who
from tests.model.site import Site
from tests.store.drawer import firing, spec

FIRED_MS = 1_700_000_000_000  # as `firing` makes envelopes
CHANGES = ("drop_spec", "put_aside", "take_up", "rewrite", "lose_recipe", "repair_spec")
THEN = ("fire", "fire and lead", "fire and lead", "write", "put aside")
when_spec = precondition(lambda self: bool(self.book.specs))
when_seen = precondition(lambda self: any(self.book.sights.values()))


class Plans(Consumers):
    def lose_lock(self, which: str) -> None:
        """It expired, and its holder does not know."""
        self.each(lambda site: site.shelf.link.ask("DEL", site.lock(which)))
        setattr(self.book, which, None)

    @rule(name=key)
    def put_spec(self, name: str) -> None:
        score, edition = 10_000 * self.book.tick(), self.book.tick()
        packed = spec(name, payload=b"%d" % edition)

        async def step(site: Site) -> bool:
            return await site.shelf.store.specs.put(await _see(site, name), packed, b"", score)

        assert self.each(step) is True
        known = self.book.specs.get(name)
        self.book.specs[name] = Spec(score, edition, None, known.fired if known else 0)

    @when_spec
    @rule(name=key, how=st.sampled_from(CHANGES))
    def change_spec(self, name: str, how: str) -> None:
        getattr(self, how)(name)

    def drop_spec(self, name: str) -> None:
        there = self.book.specs.pop(name, None) is not None
        assert self.each(lambda site: site.shelf.store.specs.drop(name)) is there

    def put_aside(self, name: str) -> None:
        """It fires no more, and where it stood is noted."""

        async def step(site: Site) -> bool:
            return await site.shelf.store.specs.put_aside(await _see(site, name))

        known = self.book.specs.get(name)
        assert self.each(step) is (known is not None)
        if known is not None:
            self.book.specs[name] = _aside(known)

    def rewrite(self, name: str) -> None:
        """Another recipe, and it fires when it would have."""
        edition, known = self.book.tick(), self.book.specs.get(name)
        packed = spec(name, payload=b"%d" % edition)

        async def step(site: Site) -> bool:
            return await site.shelf.store.specs.put(await _see(site, name), packed, b"", None)

        assert self.each(step) is (known is not None)
        if known is not None:
            self.book.specs[name] = known._replace(edition=edition)

    def take_up(self, name: str) -> None:
        """Who does so twice on the strength of one look is refused the second time."""
        score, known = 10_000 * self.book.tick(), self.book.specs.get(name)

        async def step(site: Site) -> tuple[bool, bool]:
            specs, seen = site.shelf.store.specs, await _see(site, name)
            return await specs.move(seen, score), await specs.move(seen, score + 1)

        assert self.each(step) == (known is not None, False)
        if known is not None:
            self.book.specs[name] = known._replace(score=score, aside=None)

    @when_seen
    @rule(name=who, which=key, write=st.booleans())
    def change_as_seen(self, name: str, which: str, write: bool) -> None:
        """By what was seen some time ago: a spec that is no longer so stays as it is."""
        seen, known = self.book.sights.get(name, {}).get(which), self.book.specs.get(which)
        if seen is None:
            return
        score, edition = 10_000 * self.book.tick(), self.book.tick()
        packed = spec(which, payload=b"%d" % edition)

        async def step(site: Site) -> bool:
            specs, sight = site.shelf.store.specs, site.sights[name][which]
            if write:
                return await specs.put(sight, packed, b"", score)
            return await specs.put_aside(sight)

        same = known is not None and known.same(seen)
        assert self.each(step) is same
        if known is not None and same:
            new = Spec(score, edition, None, known.fired) if write else _aside(known)
            self.book.specs[which] = new

    def lose_recipe(self, name: str) -> None:
        """A program that is not ours removes half of it."""
        self.each(lambda site: site.shelf.link.ask("DEL", site.shelf.keys.spec(name)))
        known = self.book.specs.get(name)
        if known is not None:
            self.book.specs[name] = Spec(known.score, None)

    def repair_spec(self, name: str) -> None:
        """What has no recipe goes, the others stay."""
        known = self.book.specs.get(name)
        empty = known is not None and known.edition is None
        assert self.each(lambda site: site.remedy.drop_specs([name.encode()])) == int(empty)
        if empty:
            del self.book.specs[name]

    @rule(name=who)
    def look_at_specs(self, name: str) -> None:
        """What a scheduler sees now it may fire much later, and another beside it."""
        leads = self.book.scheduler in (None, name)
        due = {which: one for which, one in self.book.specs.items() if one.score <= DUE}
        shown = sorted(which for which, one in due.items() if one.edition is not None)
        assert self.each(lambda site: site.look(name)) == (shown if leads else -1)
        if leads:
            self.book.scheduler = name
            self.book.sights[name] = {which: due[which] for which in shown}
            for which in due.keys() - set(shown):
                del self.book.specs[which]

    @when_seen
    @rule(
        name=who,
        which=key,
        windows=st.integers(0, 3),
        limit=st.sampled_from([0, 0, 0, 4]),
        over=st.sampled_from([False, False, False, True]),
    )
    def fire(self, name: str, which: str, windows: int, limit: int, over: bool) -> None:
        seen, known = self.book.sights.get(name, {}).get(which), self.book.specs.get(which)
        if seen is None:
            return
        moments = range(seen.score, seen.score + windows)
        then = None if over else seen.score + windows + 1

        async def step(site: Site) -> Any:
            one = firing(site.sights[name][which], *moments, then=then, limit=limit)
            return (await site.shelf.store.specs.fire(name, [one]))[0]

        leads = self.book.scheduler == name
        if not leads or known is None or not known.same(seen):
            assert self.each(step) == Fired(leads)
            return
        count = max(min(windows, limit - known.fired), 0) if limit else windows
        over = over or (limit > 0 and known.fired + count >= limit)
        assert self.each(step) == Fired(True, count, over)
        for at_ms in moments[:count]:
            job = f"{which}@{at_ms}"
            assert job not in self.created, "the model itself fired a window twice"
            self.created[job] = FIRED_MS
            self.book.arrive(job, attempt=0)
        if over:
            del self.book.specs[which]
        elif then is not None:
            self.book.specs[which] = known._replace(score=then, fired=known.fired + count)

    @when_spec
    @rule(name=who, how=st.sampled_from((*CHANGES, "put_spec", "fire")), then=st.sampled_from(THEN))
    def look_while_another_changes_it(self, name: str, how: str, then: str) -> None:
        """Two leaders with the same view, or a spec that is another one by now."""
        which = next(iter(self.book.specs))
        self.lose_lock("scheduler")
        self.look_at_specs(name)
        self.lose_lock("scheduler")
        if how == "fire":
            other = WHO[WHO.index(name) - 1]
            self.look_at_specs(other)
            self.fire(other, which, 1, 0, False)
            self.lose_lock("scheduler")
        else:
            getattr(self, how)(which)
        if then == "fire and lead":
            self.look_only_for_the_lock(name)
        if then.startswith("fire"):
            self.fire(name, which, 1, 0, False)
        else:
            self.change_as_seen(name, which, then == "write")

    look_likewise = look_while_another_changes_it  # which makes it twice as likely

    def look_only_for_the_lock(self, name: str) -> None:
        """It leads again, and still goes by what it saw before."""
        before = {site.name: site.sights.get(name) for site in self.sites}
        known = self.book.sights.get(name)
        self.look_at_specs(name)
        for site in self.sites:
            site.sights[name] = before[site.name] or {}
        self.book.sights[name] = known or {}


def _aside(known: Spec) -> Spec:
    stood = int(known.aside.partition(" ")[0]) if known.aside else known.score
    note = None if known.edition is None else f"{stood} "
    return known._replace(score=NEVER, aside=note)


async def _see(site: Site, name: str) -> Seen:
    return (await site.shelf.store.specs.see(name))[1]
