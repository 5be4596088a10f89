// Scores of a tile's rows over one chunk to weights e^(score - the row's largest).
//
// A row's sum adds up its even and its odd blocks, each in order, so its bits do not depend on the
// rows around it. Four rows go together, since putting the lanes of one vector together takes as
// long as for four. Included by attention.h only.

constexpr int ROWS_AT_ONCE = 4;
static_assert(TILE % ROWS_AT_ONCE == 0, "");

// The tokens of a chunk that a row sees.
struct Seen {
  int first, end;

  Seen(int first, int end) : first(std::max(first, 0)), end(end) {}
  bool all() const { return first == 0 && end == CHUNK; }
  bool none() const { return first >= end; }
  int from() const { return first / BLOCK; }
  int to() const { return (end + BLOCK - 1) / BLOCK; }
  // A block's lanes that the row sees; `otherwise` in the others.
  Vec of(Vec x, float otherwise, int b) const {
    return between(x, splat(otherwise), first - b * BLOCK, end - b * BLOCK);
  }
};

// The largest score, in one of the lanes.
INLINE Vec top_of(const float* s, const Seen& seen) {
  Vec even = splat(NOTHING), odd = even;
  if (seen.all()) {
#pragma GCC unroll 8
    for (int b = 0; b < CHUNK_BLOCKS; b += 2) {
      even = max(even, load(s + b * BLOCK));
      odd = max(odd, load(s + (b + 1) * BLOCK));
    }
  } else if (!seen.none()) {
    for (int b = seen.from(); b < seen.to(); b++)
      even = max(even, seen.of(load(s + b * BLOCK), NOTHING, b));
  }
  return max(even, odd);
}

// Weights are rounded to bf16, or stay floats: so exact must the power be.
INLINE Vec weight_of(Vec x, const bf16*) { return rough_exp2(x); }
INLINE Vec weight_of(Vec x, const float*) { return exp2(x); }

// The weights of a row, `w` (which may be `s`), up to an end of blocks; their sum over lanes.
// Weights of int8 values are multiplied by the values' scales.
template <class Element>
INLINE Vec weights_of_row(const ChunkView<Element>& view, float scale, float top, const Seen& seen,
                          const float* s, Element* w) {
  const Vec scales = splat(scale), shift = splat(-top);
  const bool scaled = view.value_scales[0];
  Vec sums[2] = {zero(), zero()};
  auto raised = [&](int b) { return weight_of(fma(load(s + b * BLOCK), scales, shift), w); };
  auto keep = [&](Vec e, int b) { return mul(e, load(view.value_scales[b])); };
  if (seen.all() && !scaled) {
#pragma GCC unroll 4
    for (int b = 0; b < CHUNK_BLOCKS; b += 2) {
      const Vec even = raised(b), odd = raised(b + 1);
      store_two(w + b * BLOCK, even, odd);
      sums[0] = add(sums[0], even), sums[1] = add(sums[1], odd);
    }
    return add(sums[0], sums[1]);
  }
  const int from = seen.none() ? 0 : seen.from(), to = seen.none() ? 0 : seen.to();
  for (int b = 0; b < from; b++) store_as(w + b * BLOCK, zero());
  for (int b = from; b < to; b++) {
    const Vec e = seen.of(raised(b), 0, b);
    sums[b % 2] = add(sums[b % 2], e);
    store_as(w + b * BLOCK, scaled ? keep(e, b) : e);
  }
  for (int b = to; b < view.blocks; b++) store_as(w + b * BLOCK, zero());
  return add(sums[0], sums[1]);
}

// Scores of int8 keys get their scales, and a soft cap is applied, before all else.
template <class Element>
void adjust_scores(const ChunkView<Element>& view, const Scoring& how, float* s) {
  for (int b = 0; b < view.blocks; b++) {
    Vec x = load(s + b * BLOCK);
    if (view.key_scales[b]) x = mul(x, load(view.key_scales[b]));
    if (how.softcap > 0)
      x = mul(tanh(mul(x, splat(how.inner_scale / how.softcap))), splat(how.softcap));
    store(s + b * BLOCK, x);
  }
}

template <class Element>
void softmax_rows(const Tile<Element>& tile, const ChunkView<Element>& view, const Scoring& how,
                  TileScratch& scratch, Partial& out) {
  if (view.key_scales[0] || how.softcap > 0)
    for (int r = 0; r < tile.rows; r++) adjust_scores(view, how, scratch.scores + r * CHUNK);
  for (int r = 0; r < tile.rows; r += ROWS_AT_ONCE) {
    auto seen = [&](int row) {
      return row < tile.rows ? Seen(tile.first[row], tile.end[row]) : Seen(0, 0);
    };
    Vec tops[ROWS_AT_ONCE], sums[ROWS_AT_ONCE];
    for (int i = 0; i < ROWS_AT_ONCE; i++)
      tops[i] = top_of(scratch.scores + (r + i) * CHUNK, seen(r + i));
    store_largest(out.top + r, tops);
    for (int i = 0; i < ROWS_AT_ONCE; i++) {
      const int row = r + i;
      if (out.top[row] > NOTHING) out.top[row] *= how.scale;
      sums[i] = weights_of_row(view, how.scale, out.top[row], seen(row),
                               scratch.scores + row * CHUNK,
                               weights_of<Element>(scratch) + row * CHUNK);
    }
    store_sums(out.total + r, sums);
  }
}
