// The two products of attention: queries with keys, and weights with values.
//
// bf16 with AMX or AVX512-BF16, or floats. Scores and weights are [row][CHUNK], values [row][dims].
// Each adds up in one fixed order per row. Included by attention.h only.

#ifdef __AMX_BF16__
// One or two tiles of rows at a time: two read K and V once for both.
template <int TILES>
INLINE void score_tiles(const KvLayout& kv, const Tile<bf16>* tiles, const ChunkView<bf16>& view,
                        TileScratch* scratch) {
  const int dims = kv.dims();
  shape_tiles_for_scores();
  auto some = [&](int b, auto two) {
    constexpr bool TWO = decltype(two)::value;
    zero_tiles<4>();
    for (int d = 0; d < dims; d += 32) {
      const int at = d * BLOCK;
      _tile_loadd(4, tiles[0].queries + d, dims * 2);
      _tile_stream_loadd(5, view.keys[b] + at, 64);
      _tile_dpbf16ps(0, 4, 5);
      if (TILES > 1) {
        _tile_loadd(6, tiles[1].queries + d, dims * 2);
        _tile_dpbf16ps(2, 6, 5);
      }
      if (TWO) {
        _tile_stream_loadd(5, view.keys[b + 1] + at, 64);
        _tile_dpbf16ps(1, 4, 5);
        if (TILES > 1) {
          _tile_dpbf16ps(3, 6, 5);
        }
      }
    }
    const int to = b * BLOCK;
    _tile_stored(0, scratch[0].scores + to, CHUNK * 4);
    if (TWO) {
      _tile_stored(1, scratch[0].scores + to + 16, CHUNK * 4);
    }
    if (TILES > 1) {
      _tile_stored(2, scratch[1].scores + to, CHUNK * 4);
      if (TWO) {
        _tile_stored(3, scratch[1].scores + to + 16, CHUNK * 4);
      }
    }
  };
  int b = 0;
  for (; b + 2 <= view.blocks; b += 2) some(b, std::true_type());
  if (b < view.blocks) some(b, std::false_type());
  memory_is_used();
}

template <int TILES>
INLINE void weigh_tiles(const KvLayout& kv, const Tile<bf16>*, const ChunkView<bf16>& view,
                        const TileScratch* scratch, Partial* out) {
  const int dims = kv.dims();
  shape_tiles_for_values();
  for (int d = 0; d < dims; d += 32) {
    zero_tiles<4>();
    for (int b = 0; b < view.blocks; b++) {
      const bf16* v = view.values[b] + d * 2;
      _tile_loadd(6, scratch[0].weights + b * BLOCK, CHUNK * 2);
      _tile_stream_loadd(7, v, dims * 4);
      _tile_dpbf16ps(0, 6, 7);
      if (TILES > 1) {
        _tile_loadd(5, scratch[1].weights + b * BLOCK, CHUNK * 2);
        _tile_dpbf16ps(2, 5, 7);
      }
      _tile_stream_loadd(4, v + 32, dims * 4);
      _tile_dpbf16ps(1, 6, 4);
      if (TILES > 1) {
        _tile_dpbf16ps(3, 5, 4);
      }
    }
    _tile_stored(0, out[0].values + d, dims * 4);
    _tile_stored(1, out[0].values + d + 16, dims * 4);
    if (TILES > 1) {
      _tile_stored(2, out[1].values + d, dims * 4);
      _tile_stored(3, out[1].values + d + 16, dims * 4);
    }
  }
  memory_is_used();
}
#elif defined(__AVX512BF16__)
INLINE Vec dot_pairs(Vec sum, Vec pair, Vec both) {
  return {_mm512_dpbf16_ps(sum.v, (__m512bh)_mm512_castps_si512(pair.v),
                           (__m512bh)_mm512_castps_si512(both.v))};
}
INLINE Vec load_pair_lanes(const bf16* p) { return {_mm512_loadu_ps((const float*)p)}; }
INLINE Vec splat_pair(const bf16* p) {
  float pair;
  std::memcpy(&pair, p, 4);
  return splat(pair);
}
#endif

// How one step of a contraction is done: two bf16 at a time, or one float.
#ifdef HAS_AVX512
constexpr int SCORE_ROWS = 6;
constexpr int SCORE_BLOCKS = 4;
#else
constexpr int SCORE_ROWS = 2;
constexpr int SCORE_BLOCKS = 2;
#endif

struct FloatSteps {
  typedef float Element;
  static constexpr int STEP = 1;
  INLINE Vec wide(const float* p) { return load(p); }
  INLINE Vec one(const float* p) { return splat(*p); }
  INLINE Vec dot(Vec sum, Vec a, Vec b) { return fma(a, b, sum); }
};
#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
struct HalfSteps {
  typedef bf16 Element;
  static constexpr int STEP = 2;
  INLINE Vec wide(const bf16* p) { return load_pair_lanes(p); }
  INLINE Vec one(const bf16* p) { return splat_pair(p); }
  INLINE Vec dot(Vec sum, Vec a, Vec b) { return dot_pairs(sum, a, b); }
};
#endif

template <class S, int R, int B>
INLINE void score_some(const typename S::Element* q, int dims, const typename S::Element* const* k,
                       float* scores) {
  Vec c[R][B];
#pragma GCC unroll 6
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int b = 0; b < B; b++) c[r][b] = zero();
  for (int d = 0; d < dims; d += S::STEP) {
    Vec keys[B];
#pragma GCC unroll 4
    for (int b = 0; b < B; b++) keys[b] = S::wide(k[b] + d * BLOCK);
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
      Vec x = S::one(q + r * dims + d);
#pragma GCC unroll 4
      for (int b = 0; b < B; b++) c[r][b] = S::dot(c[r][b], x, keys[b]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int b = 0; b < B; b++) store(scores + r * CHUNK + b * BLOCK, c[r][b]);
}

template <class S, int R>
INLINE void score_blocks(const typename S::Element* q, int dims,
                         const ChunkView<typename S::Element>& view, float* scores) {
  int b = 0;
  for (; b + SCORE_BLOCKS <= view.blocks; b += SCORE_BLOCKS)
    score_some<S, R, SCORE_BLOCKS>(q, dims, view.keys + b, scores + b * BLOCK);
  for (; b < view.blocks; b++) score_some<S, R, 1>(q, dims, view.keys + b, scores + b * BLOCK);
}

template <class S, int R, int W>
INLINE void weigh_some(const typename S::Element* w, const ChunkView<typename S::Element>& view,
                       int dims, int d, float* values) {
  Vec c[R][W];
#pragma GCC unroll 6
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int i = 0; i < W; i++) c[r][i] = zero();
  for (int b = 0; b < view.blocks; b++)
    for (int t = 0; t < BLOCK; t += S::STEP) {
      const typename S::Element* from = view.values[b] + t * dims + d * S::STEP;
      Vec v[W];
#pragma GCC unroll 4
      for (int i = 0; i < W; i++) v[i] = S::wide(from + i * LANES * S::STEP);
#pragma GCC unroll 6
      for (int r = 0; r < R; r++) {
        Vec x = S::one(w + r * CHUNK + b * BLOCK + t);
#pragma GCC unroll 4
        for (int i = 0; i < W; i++) c[r][i] = S::dot(c[r][i], x, v[i]);
      }
    }
#pragma GCC unroll 6
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int i = 0; i < W; i++) store(values + r * dims + d + i * LANES, c[r][i]);
}

template <class S, int R>
INLINE void weigh_dims(const typename S::Element* w, const ChunkView<typename S::Element>& view,
                       int dims, float* values) {
  int d = 0;
  for (; d + LANES * SCORE_BLOCKS <= dims; d += LANES * SCORE_BLOCKS)
    weigh_some<S, R, SCORE_BLOCKS>(w, view, dims, d, values);
  for (; d < dims; d += LANES * 2) weigh_some<S, R, 2>(w, view, dims, d, values);
}

// f(first row, constant number of rows) for all rows.
template <class F>
INLINE void few_rows(int rows, F&& f) {
  for (int r = 0; r < rows;) {
    int n = rows - r < SCORE_ROWS ? rows - r : SCORE_ROWS;
    switch (n) {
      case 1: f(r, std::integral_constant<int, 1>()); break;
      case 2: f(r, std::integral_constant<int, 2>()); break;
#ifdef HAS_AVX512
      case 3: f(r, std::integral_constant<int, 3>()); break;
      case 4: f(r, std::integral_constant<int, 4>()); break;
      case 5: f(r, std::integral_constant<int, 5>()); break;
      case 6: f(r, std::integral_constant<int, 6>()); break;
#endif
    }
    r += n;
  }
}

template <class S, int TILES>
INLINE void score_with(const KvLayout& kv, const Tile<typename S::Element>* tiles,
                       const ChunkView<typename S::Element>& view, TileScratch* scratch) {
  for (int t = 0; t < TILES; t++)
    few_rows(tiles[t].rows, [&](int r, auto n) {
      score_blocks<S, decltype(n)::value>(tiles[t].queries + r * kv.dims(), kv.dims(), view,
                                          scratch[t].scores + r * CHUNK);
    });
}
template <class S, int TILES>
INLINE void weigh_with(const KvLayout& kv, const Tile<typename S::Element>* tiles,
                       const ChunkView<typename S::Element>& view, const TileScratch* scratch,
                       Partial* out) {
  for (int t = 0; t < TILES; t++)
    few_rows(tiles[t].rows, [&](int r, auto n) {
      weigh_dims<S, decltype(n)::value>(weights_of<typename S::Element>(scratch[t]) + r * CHUNK,
                                        view, kv.dims(), out[t].values + r * kv.dims());
    });
}

template <int TILES>
INLINE void score_tiles(const KvLayout& kv, const Tile<float>* tiles, const ChunkView<float>& view,
                        TileScratch* scratch) {
  score_with<FloatSteps, TILES>(kv, tiles, view, scratch);
}
template <int TILES>
INLINE void weigh_tiles(const KvLayout& kv, const Tile<float>* tiles, const ChunkView<float>& view,
                        const TileScratch* scratch, Partial* out) {
  weigh_with<FloatSteps, TILES>(kv, tiles, view, scratch, out);
}
#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
template <int TILES>
INLINE void score_tiles(const KvLayout& kv, const Tile<bf16>* tiles, const ChunkView<bf16>& view,
                        TileScratch* scratch) {
  score_with<HalfSteps, TILES>(kv, tiles, view, scratch);
}
template <int TILES>
INLINE void weigh_tiles(const KvLayout& kv, const Tile<bf16>* tiles, const ChunkView<bf16>& view,
                        const TileScratch* scratch, Partial* out) {
  weigh_with<HalfSteps, TILES>(kv, tiles, view, scratch, out);
}
#endif
