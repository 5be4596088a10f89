// What the page has seen of the counters over time.

const SPAN_S = 300;
const WINDOW_S = 10; // prompts of so many seconds make one share

export const STATES = ["cached", "pinned", "in flight", "private", "free"];

// A hit first, then what was missed, by why.
export const OUTCOMES = ["cached", "full", "diverged", "cold", "evicted", "in_flight", "namespace", "short", "bypassed", "unknown"];

export class History {
  constructor() {
    this.points = [];
  }

  take(update) {
    const { state, counters } = update;
    this.points.push({ at: update.at, state, cached: counters.cached_tokens ?? 0, missed: update.missed_tokens, steps: update.steps });
    while (this.points.length && this.points[0].at < update.at - SPAN_S - WINDOW_S) this.points.shift();
  }

  // Seconds that charts show: as far back as there is something, within bounds.
  get span() {
    return Math.min(SPAN_S, Math.max(60, this.last.at - this.points[0].at));
  }

  get last() {
    return this.points[this.points.length - 1];
  }

  blocks() {
    return this.points.map(({ at, state }) => ({ at, values: byState(state) }));
  }

  // Shares of prompt tokens by what came of them; null values where there were no prompts.
  outcomes() {
    const told = [];
    let first = 0;
    for (const point of this.points) {
      while (this.points[first].at < point.at - WINDOW_S) first++;
      const before = this.points[Math.max(0, first - 1)];
      const values = { cached: point.cached - before.cached };
      for (const [why, count] of Object.entries(point.missed)) values[why] = count - (before.missed[why] ?? 0);
      const all = Object.values(values).reduce((sum, value) => sum + value, 0);
      if (all > 0) for (const why of Object.keys(values)) values[why] /= all;
      told.push({ at: point.at, values: all > 0 ? values : null });
    }
    return told;
  }

  // Steps each second and microseconds of one, over the last seconds.
  pace() {
    const last = this.last;
    const before = this.points[Math.max(0, this.points.length - 6)];
    const steps = last.steps.count - before.steps.count;
    const sum = (point) => Object.values(point.steps.seconds).reduce((all, each) => all + each, 0);
    const spent = sum(last) - sum(before);
    return { each: steps ? spent / steps : null, rate: last.at > before.at ? steps / (last.at - before.at) : 0 };
  }
}

export function byState(state) {
  const cached = state.blocks_cached ?? 0;
  const evictable = Math.min(cached, state.blocks_evictable ?? 0);
  return {
    cached: evictable,
    pinned: cached - evictable,
    "in flight": state.blocks_in_flight ?? 0,
    private: state.blocks_private ?? 0,
    free: state.blocks_free ?? 0,
  };
}
