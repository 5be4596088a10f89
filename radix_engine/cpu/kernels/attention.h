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
#include "attention_softmax.h"

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
