// BullMQ on Node: the scenarios of kit.py, with the same protocol and the same clocks.
//
//     node bullmq_child.mjs '<orders as JSON>'
//     node bullmq_child.mjs @<file with orders as JSON>
//
// It lies beside `node_modules` when it runs: Node looks for packages from there.

import { existsSync, readFileSync, writeSync } from "node:fs";
import { performance } from "node:perf_hooks";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";

const GIVE_UP_MS = 120_000;
const GAP_MS = 10; // between two jobs of `latency`
const FILL = 100; // jobs at a time
const WARM_UP = 20; // jobs before the first measured one of `latency`
const IN_REDIS = ["waiting", "active", "delayed", "prioritized"];
const PACKAGES = ["bullmq", "ioredis"];
const RESULT = { sent: true, to: "some@example.com" }; // of a handler that returns one

class CannotError extends Error {}

class Clock {
  constructor() {
    this.wall = performance.now();
    this.cpu = process.cpuUsage(); // of all threads, and of nothing but this process
  }

  result(jobs) {
    const seconds = (performance.now() - this.wall) / 1000;
    const { user, system } = process.cpuUsage(this.cpu);
    const cpu = (user + system) / 1e6;
    return { rate: jobs / seconds, seconds, cpu_per_100k: (cpu / jobs) * 1e5 };
  }
}

/** Counts starts of handlers; its clock runs from the one at 10 %. */
class Tally {
  constructor(jobs, runs = 1) {
    this.runs = runs; // of each job: 2 where the first one fails
    this.starts = jobs * runs;
    this.first = Math.max(Math.floor(this.starts / 10), 1);
    this.handled = 0;
    this.all = new Promise((resolve) => {
      this.done = resolve;
    });
  }

  /** Start the clock now, and let every job count. */
  begin() {
    this.first = 0;
    this.clock = new Clock();
  }

  hit() {
    this.handled += 1;
    if (this.handled === this.first) this.clock = new Clock();
    if (this.handled === this.starts) this.done();
  }

  async wait() {
    const late = () => fail(`${this.handled} of ${this.starts} runs began in ${GIVE_UP_MS} ms`);
    const timer = setTimeout(late, GIVE_UP_MS);
    await this.all;
    clearTimeout(timer);
  }

  /** Waits until nothing is left in Redis, then stops the clock. */
  async result(left) {
    const giveUp = performance.now() + GIVE_UP_MS;
    for (let count; (count = await left()); await sleep(1)) {
      if (performance.now() > giveUp) throw new Error(`${count} jobs are left in Redis`);
    }
    const result = this.clock.result((this.starts - this.first) / this.runs);
    return { ...result, handled: this.handled / this.runs };
  }
}

class Peer {
  constructor(orders) {
    this.orders = orders;
    this.settings = { removeOnComplete: orders.handler !== "result" };
    if (orders.what === "retry") this.settings.attempts = 2;
    this.queue = new Queue(orders.queue, { connection: this.connection() });
  }

  connection() {
    return new Redis(this.orders.url, { maxRetriesPerRequest: null });
  }

  add(data) {
    return this.queue.add("handle", data, this.settings);
  }

  addMany(list) {
    return this.queue.addBulk(list.map((data) => ({ name: "handle", data, opts: this.settings })));
  }

  addAt(moments) {
    return this.queue.addBulk(
      moments.map((moment) => ({
        name: "handle",
        data: { due: moment },
        opts: { ...this.settings, delay: Math.round(moment - nowMs()) },
      })),
    );
  }

  async left() {
    const counts = await this.queue.getJobCounts(...IN_REDIS);
    return Object.values(counts).reduce((sum, count) => sum + count, 0);
  }

  async work(handler) {
    const worker = new Worker(this.orders.queue, (job) => handler(job.data), {
      connection: this.connection(),
      concurrency: this.orders.concurrency,
      autorun: false,
    });
    worker.on("error", (error) => fail(error.stack));
    await worker.waitUntilReady();
    worker.run().catch((error) => fail(error.stack));
  }
}

async function work(peer, orders) {
  const tally = new Tally(orders.jobs);
  const handlers = {
    noop: async () => tally.hit(),
    sleep: async () => {
      tally.hit();
      await sleep(1);
    },
    result: async () => {
      tally.hit();
      return RESULT;
    },
  };
  if (!(orders.handler in handlers)) {
    throw new CannotError("plain functions run on its event loop, and it has no threads for them");
  }
  await fill(peer, Array(orders.jobs).fill(orders.payload), (list) => peer.addMany(list));
  await ready();
  return await finish(peer, tally, handlers[orders.handler]);
}

async function retry(peer, orders) {
  const tally = new Tally(orders.jobs, 2);
  const failed = new Set();
  const handle = async (data) => {
    tally.hit();
    if (!failed.has(data.number)) {
      failed.add(data.number);
      throw new Error("the first run fails");
    }
  };
  const jobs = Array.from({ length: orders.jobs }, (_, number) => ({ ...orders.payload, number }));
  await fill(peer, jobs, (list) => peer.addMany(list));
  await ready();
  return await finish(peer, tally, handle);
}

async function delayed(peer, orders) {
  const tally = new Tally(orders.jobs);
  const moment = nowMs() + leadMs(orders);
  await fill(peer, Array(orders.jobs).fill(moment), (list) => peer.addAt(list));
  await ready();
  return await finish(peer, tally, async () => tally.hit(), moment);
}

async function punctual(peer, orders) {
  const tally = new Tally(orders.jobs);
  const ms = [];
  const handle = async (data) => {
    ms.push(nowMs() - data.due);
    tally.hit();
  };
  const first = nowMs() + leadMs(orders);
  const step = orders.spread_ms / orders.jobs;
  const moments = Array.from({ length: orders.jobs }, (_, number) => first + number * step);
  await fill(peer, moments, (list) => peer.addAt(list));
  await ready();
  return { ...(await finish(peer, tally, handle, first)), ms };
}

async function latency(peer, orders) {
  const [warmUp, tally] = [new Tally(WARM_UP), new Tally(orders.jobs)];
  const ms = [];
  const handle = async (data) => {
    ms.push(nowMs() - data.at);
    (data.counts ? tally : warmUp).hit();
  };
  const add = async (jobs, counts) => {
    for (let number = 0; number < jobs; number += 1) {
      await peer.add({ counts, at: nowMs() });
      await sleep(GAP_MS);
    }
  };
  await peer.work(handle);
  await add(WARM_UP, false);
  await warmUp.wait();
  await ready();
  await add(orders.jobs, true);
  await tally.wait();
  return { ...(await tally.result(() => peer.left())), ms: ms.slice(WARM_UP) };
}

async function produce(peer, orders) {
  const many = Array(orders.size).fill(orders.payload);
  const call = {
    add: () => peer.add(orders.payload),
    concurrent: () => Promise.all(many.map((data) => peer.add(data))),
    bulk: () => peer.addMany(many),
  }[orders.what];
  const calls = Math.max(Math.floor(orders.jobs / orders.size), 1);
  const warmUp = Math.max(Math.floor(200 / orders.size), 2);
  for (let number = 0; number < warmUp; number += 1) await call();
  await ready();
  const clock = new Clock();
  for (let number = 0; number < calls; number += 1) await call();
  return { ...clock.result(calls * orders.size), added: (calls + warmUp) * orders.size };
}

async function fill(peer, jobs, add) {
  for (let first = 0; first < jobs.length; first += FILL) {
    await add(jobs.slice(first, first + FILL));
  }
  const found = await peer.left();
  if (found !== jobs.length) {
    throw new Error(`${jobs.length} jobs were added, Redis holds ${found}`);
  }
}

/** Work and answer; `moment` is when the clock of delayed jobs starts. */
async function finish(peer, tally, handler, moment) {
  await peer.work(handler);
  if (moment !== undefined) {
    const pause = moment - nowMs();
    if (pause < 0) throw new Error(`adding took ${-pause} ms longer than the jobs were delayed`);
    await sleep(pause);
    tally.begin();
  }
  await tally.wait();
  return await tally.result(() => peer.left());
}

/** How long before the first of its moments the child begins to add its delayed jobs. */
function leadMs(orders) {
  return 2000 + orders.jobs / 2;
}

function nowMs() {
  return performance.timeOrigin + performance.now();
}

/** Say that everything is ready, and wait for the starting signal. */
async function ready() {
  writeSync(1, "ready\n");
  const lines = createInterface({ input: process.stdin });
  await new Promise((resolve) => {
    lines.once("line", resolve);
    lines.once("close", resolve);
  });
  lines.close();
}

/** Print it and be gone: a worker's goodbye is not what is measured here. */
function answer(result) {
  const rss = process.resourceUsage().maxRSS / 1024;
  writeSync(1, `${JSON.stringify({ ...result, rss_mb: rss, packages: installed() })}\n`);
  process.exit(0);
}

function installed() {
  const found = { node: process.versions.node };
  for (const name of PACKAGES) {
    const about = new URL(`node_modules/${name}/package.json`, import.meta.url);
    if (existsSync(about)) found[name] = JSON.parse(readFileSync(about, "utf8")).version;
  }
  return found;
}

function fail(message) {
  writeSync(2, `${message}\n`);
  process.exit(1);
}

const DEFAULTS = {
  queue: "bench",
  jobs: 1000,
  size: 1,
  payload: null,
  concurrency: 100,
  handler: "noop",
  spread_ms: 3000,
};
const KINDS = { worker: work, retry, delayed, punctual, latency };

try {
  const told = process.argv[2];
  const given = told.startsWith("@") ? readFileSync(told.slice(1), "utf8") : told;
  const orders = { ...DEFAULTS, ...JSON.parse(given) };
  const peer = new Peer(orders);
  await peer.queue.waitUntilReady();
  answer(await (KINDS[orders.what] ?? produce)(peer, orders));
} catch (error) {
  if (error instanceof CannotError) answer({ cannot: error.message });
  fail(error.stack);
}
