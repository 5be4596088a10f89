// Attention of up to 16 query rows over one chunk of 256 tokens, and how chunks are put together.
//
// A row is one query head of one token; all rows share a KV head. A chunk's result is a softmax of
// its own (maximum, sum, weighted values); chunks are merged in order. Chunks begin at multiples of
// 256 and rows do not touch each other, so a row's bits are the same whether its token was decoded,
// part of a prompt, or computed together with others that share the chunk's blocks. (After Milakov
// and Gimelshein, "Online normalizer calculation for softmax", 2018; the split of the context is
// that of FlashDecoding.)
#pragma once
#include <algorithm>

#include "amx.h"
#include "kv.h"

constexpr int TILE = 16;            // query rows
constexpr float NOTHING = -1e30f;   // the maximum of no scores

struct Scoring {
  float scale;        // of scores to powers of 2: the softmax's times log2(e)
  float softcap;      // 0: none; else scores s become softcap * tanh(s / softcap) before the mask
  float inner_scale;  // the softmax's, applied within the cap
};

// One head's dot products to scores: scaled by 1 / sqrt(dimensions), as attention is.
INLINE Scoring scoring_of(int head_dim, float softcap) {
  const float scale = 1.f / std::sqrt((float)head_dim);
  return {softcap > 0 ? LOG2E : scale * LOG2E, softcap, scale};
}

// The query rows of a tile, and which tokens each sees, relative to the chunk.
template <class Element>
struct Tile {
  alignas(64) Element queries[TILE * MAX_HEAD];  // [row][dims]
  int first[TILE];                               // sees tokens from here
  int end[TILE];                                 // up to here
  int rows;
};

struct TileScratch {
  alignas(64) float scores[TILE * CHUNK];
  alignas(64) bf16 weights[TILE * CHUNK];
};

// Weights lie beside the scores, or, as floats, in their place.
template <class Element>
INLINE Element* weights_of(const TileScratch& scratch) {
  if constexpr (sizeof(Element) == 2)
    return const_cast<bf16*>(scratch.weights);
  else
    return const_cast<float*>(scratch.scores);
}

// What a chunk, or several, contribute to the rows of a tile.
struct Partial {
  alignas(64) float top[TILE];
  alignas(64) float total[TILE];
  alignas(64) float values[TILE * MAX_HEAD];  // [row][dims]
};

#include "attention_scores.h"

// The blocks of a chunk that a row sees: whole ones, and one before and behind that it sees a part
// of (-1: none). For one row always the same, so its sums are, too.
struct SeenBlocks {
  int lead, from, to, tail;

  SeenBlocks(int first, int end) {
    first = std::max(first, 0);
    const bool parted = first % BLOCK != 0 && first < end;
    lead = parted ? first / BLOCK : -1;
    from = (first + BLOCK - 1) / BLOCK;
    to = std::max(from, end / BLOCK);
    tail = end > to * BLOCK && (!parted || end / BLOCK > lead) && first < end ? end / BLOCK : -1;
  }
};

// Weights are rounded to bf16, or stay floats: so exact must the power be.
INLINE Vec weight_of(Vec x, const bf16*) { return rough_exp2(x); }
INLINE Vec weight_of(Vec x, const float*) { return exp2(x); }

// Scores to weights e^(score - top); what a row does not see weighs 0. `weights` may be `scores`.
template <class Element>
void softmax_row(const ChunkView<Element>& view, const Scoring& how, int first, int end, float* s,
                 Element* w, float& most, float& total) {
  const SeenBlocks seen(first, end);
  auto part = [&](Vec x, float otherwise, int b) {
    return between(x, splat(otherwise), first - b * BLOCK, end - b * BLOCK);
  };
  // Four at a time, so that one does not wait for the other.
  Vec a0 = splat(NOTHING), a1 = a0, a2 = a0, a3 = a0;
  if (seen.lead >= 0) a0 = max(a0, part(load(s + seen.lead * BLOCK), NOTHING, seen.lead));
  if (seen.tail >= 0) a1 = max(a1, part(load(s + seen.tail * BLOCK), NOTHING, seen.tail));
  int b = seen.from;
  for (; b + 4 <= seen.to; b += 4) {
    const float* x = s + b * BLOCK;
    a0 = max(a0, load(x)), a1 = max(a1, load(x + 16));
    a2 = max(a2, load(x + 32)), a3 = max(a3, load(x + 48));
  }
  for (; b < seen.to; b++) a0 = max(a0, load(s + b * BLOCK));
  most = largest(max(max(a0, a1), max(a2, a3)));
  if (most > NOTHING) most *= how.scale;

  const Vec scale = splat(how.scale), shift = splat(-most);
  auto raised = [&](int b) { return weight_of(fma(load(s + b * BLOCK), scale, shift), w); };
  auto keep = [&](Vec e, int b) {
    store_as(w + b * BLOCK, view.value_scales[b] ? mul(e, load(view.value_scales[b])) : e);
    return e;
  };
  a0 = a1 = a2 = a3 = zero();
  if (seen.lead >= 0) a0 = keep(part(raised(seen.lead), 0, seen.lead), seen.lead);
  if (seen.tail >= 0) a1 = keep(part(raised(seen.tail), 0, seen.tail), seen.tail);
  b = seen.from;
  for (; b + 4 <= seen.to; b += 4) {
    a0 = add(a0, keep(raised(b), b)), a1 = add(a1, keep(raised(b + 1), b + 1));
    a2 = add(a2, keep(raised(b + 2), b + 2)), a3 = add(a3, keep(raised(b + 3), b + 3));
  }
  for (; b < seen.to; b++) a0 = add(a0, keep(raised(b), b));
  total = sum(add(add(a0, a1), add(a2, a3)));
  const int before = seen.lead >= 0 ? seen.lead : seen.from;
  const int behind = seen.tail >= 0 ? seen.tail + 1 : std::max(seen.to, seen.lead + 1);
  for (int b = 0; b < std::min(before, view.blocks); b++) store_as(w + b * BLOCK, zero());
  for (int b = behind; b < view.blocks; b++) store_as(w + b * BLOCK, zero());
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
  for (int r = 0; r < tile.rows; r++) {
    float* s = scratch.scores + r * CHUNK;
    if (view.key_scales[0] || how.softcap > 0) adjust_scores(view, how, s);
    softmax_row(view, how, tile.first[r], tile.end[r], s, weights_of<Element>(scratch) + r * CHUNK,
                out.top[r], out.total[r]);
  }
}

// One or two tiles over one chunk.
template <int TILES, class Element>
void attend_chunk(const KvLayout& kv, const Tile<Element>* tiles, const ChunkView<Element>& view,
                  const Scoring& how, TileScratch* scratch, Partial* out) {
  score_tiles<TILES>(kv, tiles, view, scratch);
  for (int t = 0; t < TILES; t++) softmax_rows(tiles[t], view, how, scratch[t], out[t]);
  weigh_tiles<TILES>(kv, tiles, view, scratch, out);
}

INLINE void begin(Partial& all, int rows, int dims) {
  for (int r = 0; r < rows; r++) all.top[r] = NOTHING, all.total[r] = 0;
  std::memset(all.values, 0, sizeof(float) * rows * dims);
}

// The next chunk's part of one row. All of one that sees nothing there leaves the row as it is.
INLINE void merge_row(float& top, float& total, float* values, float next_top, float next_total,
                      const float* next_values, int dims) {
  const float most = next_top > top ? next_top : top;
  alignas(64) float both[LANES];
  Vec powers = exp2(sub(between(splat(top), splat(next_top), 0, 1), splat(most)));
  store(both, powers);
  Vec old_part = splat(both[0]), new_part = splat(both[1]);
  top = most;
  total = std::fmaf(next_total, both[1], total * both[0]);
  for (int d = 0; d < dims; d += LANES)
    store(values + d, fma(load(next_values + d), new_part, mul(load(values + d), old_part)));
}

INLINE void merge(Partial& all, const Partial& next, int rows, int dims) {
  for (int r = 0; r < rows; r++)
    merge_row(all.top[r], all.total[r], all.values + r * dims, next.top[r], next.total[r],
              next.values + r * dims, dims);
}
