// K and V in memory: blocks of 16 tokens, one after another, in each layer.
//
//   block:    [KV head]{ K | V | scales of K [16] | scales of V [16] }     scales only of I8
//   K, V for bf16 arithmetic:   K [dimension pair][16 tokens][2]   V [token pair][dimension][2]
//   K, V for float arithmetic:  K [dimension][16 tokens]           V [token][dimension]
//
// Elements are floats, bf16 or int8 with one scale per token and head. Dimensions are padded with
// zeros to a multiple of 32. Attention reads a chunk of 256 tokens of one head at a time, in the
// type it computes in: where that is how it is stored and no row is missing, in place.
#pragma once
#include "simd.h"

constexpr int BLOCK = 16;
constexpr int CHUNK = 256;  // tokens whose attention is computed in one piece
constexpr int CHUNK_BLOCKS = CHUNK / BLOCK;
constexpr int MAX_HEAD = 256;  // dimensions

enum KvType : int32_t { KV_F32 = 0, KV_BF16 = 1, KV_I8 = 2 };

struct KvLayout {
  int type;
  int heads;
  int head_dim;
  bool pairs;  // laid out for bf16 arithmetic

  KvLayout() = default;
  KvLayout(int type, int heads, int head_dim) : type(type), heads(heads), head_dim(head_dim) {
#ifdef __AVX512BF16__
    pairs = type != KV_F32;
#else
    pairs = false;
#endif
  }
  int dims() const { return (head_dim + 31) / 32 * 32; }
  size_t element() const { return type == KV_F32 ? 4 : type == KV_BF16 ? 2 : 1; }
  size_t part() const { return (size_t)BLOCK * dims() * element(); }  // bytes of K or V
  size_t head_bytes() const { return 2 * part() + (type == KV_I8 ? 2 * BLOCK * 4 : 0); }
  size_t block_bytes() const { return heads * head_bytes(); }

  // Where element `d` of V of the token at offset `t` lies.
  int value_at(int t, int d) const {
    return pairs ? (t / 2 * dims() + d) * 2 + t % 2 : t * dims() + d;
  }
};

// One row of a part: element d goes to place at(d).
template <class Element, class At>
INLINE void scatter(const Element* row, Element* part, int count, At&& at) {
  for (int d = 0; d < count; d++) part[at(d)] = row[d];
}

// One token's row of K or V [head_dim] as int8 with one scale.
INLINE float quantize_row(const float* from, int count, int8_t* to) {
  Vec top = zero();
  for (int d = 0; d < count; d += LANES) top = max(top, abs(load(from + d)));
  const float most = largest(top);
  const Vec inverse = splat(most > 0 ? 127.f / most : 0.f);
  for (int d = 0; d < count; d += LANES) store_i8(to + d, mul(load(from + d), inverse));
  return most / 127.f;
}

// One token's K and V (floats [head_dim]) of one head into its block.
INLINE void write_kv(const KvLayout& kv, char* block, int head, int offset, const float* key,
                     const float* value) {
  char* k = block + head * kv.head_bytes();
  char* v = k + kv.part();
  float* scales = (float*)(v + kv.part());
  const int count = kv.head_dim;
  auto place = [&](const float* from, char* part, float& scale, auto&& at) {
    alignas(64) bf16 halves[MAX_HEAD];
    alignas(64) int8_t bytes[MAX_HEAD];
    if (kv.type == KV_F32) {
      scatter(from, (float*)part, count, at);
    } else if (kv.type == KV_BF16) {
      for (int d = 0; d < count; d += LANES) store_bf16(halves + d, load(from + d));
      scatter(halves, (bf16*)part, count, at);
    } else {
      scale = quantize_row(from, count, bytes);
      scatter(bytes, (int8_t*)part, count, at);
    }
  };
  // What does not depend on the dimension is worked out once.
  if (kv.pairs) {
    const int row = offset / 2 * kv.dims() * 2 + offset % 2;
    place(key, k, scales[offset], [&](int d) { return (d / 2 * BLOCK + offset) * 2 + d % 2; });
    place(value, v, scales[BLOCK + offset], [&](int d) { return row + d * 2; });
  } else {
    const int row = offset * kv.dims();
    place(key, k, scales[offset], [&](int d) { return d * BLOCK + offset; });
    place(value, v, scales[BLOCK + offset], [&](int d) { return row + d; });
  }
}

// One head's K and V of a chunk, in the type of the arithmetic (`Element`: bf16 or float).
template <class Element>
struct ChunkView {
  const Element* keys[CHUNK_BLOCKS];
  const Element* values[CHUNK_BLOCKS];
  const float* key_scales[CHUNK_BLOCKS];  // null: none
  const float* value_scales[CHUNK_BLOCKS];
  int blocks;
};

template <class Element>
struct ChunkScratch {
  alignas(64) Element keys[CHUNK * MAX_HEAD];
  alignas(64) Element values[CHUNK * MAX_HEAD];
};

template <class Element>
INLINE Vec load_stored(const char* part, int type, int at) {
  if (type == KV_I8) return load_i8((const int8_t*)part + at);
  if (type == KV_BF16) return load_bf16((const bf16*)part + at);
  return load((const float*)part + at);
}
INLINE void store_as(float* to, Vec v) { store(to, v); }
INLINE void store_as(bf16* to, Vec v) { store_bf16(to, v); }
INLINE void store_two(float* to, Vec a, Vec b) { store(to, a), store(to + LANES, b); }
INLINE void store_two(bf16* to, Vec a, Vec b) { store_two_bf16(to, a, b); }

// Tokens that are not there must not be read: their rows of V are zeros here (those of K are
// masked later), whatever an earlier owner left in the block.
template <class Element>
INLINE void without_tail(const KvLayout& kv, Element* values, int tokens) {
  for (int t = tokens; t < BLOCK; t++)
    for (int d = 0; d < kv.dims(); d++) values[kv.value_at(t, d)] = 0;
}

// `table`: the block ids of the chunk; `tokens`: how many of its tokens are there (1 to CHUNK).
template <class Element>
void view_chunk(const KvLayout& kv, const char* memory, const int32_t* table, int head, int tokens,
                ChunkScratch<Element>& scratch, ChunkView<Element>& view) {
  const bool in_place = kv.type == (sizeof(Element) == 2 ? KV_BF16 : KV_F32);
  const int count = BLOCK * kv.dims();
  view.blocks = (tokens + BLOCK - 1) / BLOCK;
  for (int b = 0; b < view.blocks; b++) {
    const char* k = memory + table[b] * kv.block_bytes() + head * kv.head_bytes();
    const char* v = k + kv.part();
    const float* scales = (const float*)(v + kv.part());
    view.key_scales[b] = kv.type == KV_I8 ? scales : nullptr;
    view.value_scales[b] = kv.type == KV_I8 ? scales + BLOCK : nullptr;
    Element* own_keys = scratch.keys + b * count;
    Element* own_values = scratch.values + b * count;
    const int here = tokens - b * BLOCK;
    if (in_place) {
      view.keys[b] = (const Element*)k;
      view.values[b] = (const Element*)v;
      if (here < BLOCK) {
        std::memcpy(own_values, v, count * sizeof(Element));
        without_tail(kv, own_values, here);
        view.values[b] = own_values;
      }
      continue;
    }
    for (int i = 0; i < count; i += LANES) {
      store_as(own_keys + i, load_stored<Element>(k, kv.type, i));
      store_as(own_values + i, load_stored<Element>(v, kv.type, i));
    }
    if (here < BLOCK) without_tail(kv, own_values, here);
    view.keys[b] = own_keys;
    view.values[b] = own_values;
  }
}
