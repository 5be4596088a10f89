// One panel of a matrix times some rows: 32 outputs of each row.
//
// Every kernel adds up over the columns in one fixed order, whatever the number of rows, so that a
// row's result is the same bits alone and in any batch. Which kernel runs depends on the matrix
// and the processor only.
//
// `sink(row, low, high)` gets outputs 0-15 and 16-31 of the panel.
#pragma once
#include "input.h"
#include "product_bytes.h"
#ifdef __AMX_BF16__
#include "product_amx.h"
#endif

// All rows of a panel, `most` (a constant) at a time, the rest in one smaller piece.
template <int MOST, class Kernel>
INLINE void in_pieces(int rows, Kernel&& kernel) {
  // Even pieces: 13 rows are 7 and 6, not 12 and 1.
  int pieces = (rows + MOST - 1) / MOST;
  for (int i = 0, row = 0; i < pieces; i++) {
    int count = rows / pieces + (i < rows % pieces);
    kernel(row, count);
    row += count;
  }
}

#define CASES(f) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12)

#ifdef __AVX512BF16__
template <int R, class Sink>
INLINE void halves_rows(const bf16* a, int stride, int columns, const bf16* w, Sink&& sink) {
  __m512 c[R][2];
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) c[r][0] = c[r][1] = _mm512_setzero_ps();
#pragma GCC unroll 2
  for (int k = 0; k < columns; k += 2) {
    __m512bh low = (__m512bh)_mm512_loadu_si512(w + k * PANEL);
    __m512bh high = (__m512bh)_mm512_loadu_si512(w + k * PANEL + 32);
    if (R <= 4) {
      _mm_prefetch((const char*)(w + k * PANEL + 2048), _MM_HINT_T0);
      _mm_prefetch((const char*)(w + k * PANEL + 2048 + 32), _MM_HINT_T0);
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) {
      int32_t pair;
      std::memcpy(&pair, a + (size_t)r * stride + k, 4);
      __m512bh both = (__m512bh)_mm512_set1_epi32(pair);
      c[r][0] = _mm512_dpbf16_ps(c[r][0], both, low);
      c[r][1] = _mm512_dpbf16_ps(c[r][1], both, high);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) sink(r, Vec{c[r][0]}, Vec{c[r][1]});
}

template <class Sink>
void product_halves(const Input& in, int row, int rows, const bf16* w, Sink&& sink) {
  in_pieces<12>(rows, [&](int first, int count) {
    const bf16* a = in.halves + (size_t)(row + first) * in.stride;
    auto part = [&](int r, Vec low, Vec high) { sink(row + first + r, low, high); };
    switch (count) {
#define ROWS(n) \
  case n: halves_rows<n>(a, in.stride, in.columns, w, part); break;
      CASES(ROWS)
#undef ROWS
    }
  });
}
#endif

// Two columns of a panel of floats or bf16, widened.
INLINE void panel_pair(const float* w, int k, Vec (&even)[2], Vec (&odd)[2]) {
  even[0] = load(w + (size_t)k * PANEL);
  even[1] = load(w + (size_t)k * PANEL + 16);
  odd[0] = load(w + (size_t)k * PANEL + 32);
  odd[1] = load(w + (size_t)k * PANEL + 48);
}
INLINE void panel_pair(const bf16* w, int k, Vec (&even)[2], Vec (&odd)[2]) {
  load_pairs(w + (size_t)k * PANEL, even[0], odd[0]);
  load_pairs(w + (size_t)k * PANEL + 32, even[1], odd[1]);
}

#ifdef HAS_AVX512
constexpr int FLOAT_ROWS = 10;  // two accumulators each, of 32 registers
#else
constexpr int FLOAT_ROWS = 2;  // four each, of 16
#endif

template <int R, class Weight, class Sink>
INLINE void float_rows(const float* a, int stride, int columns, const Weight* w, Sink&& sink) {
  Vec c[R][2];
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) c[r][0] = c[r][1] = zero();
  for (int k = 0; k < columns; k += 2) {
    Vec even[2], odd[2];
    panel_pair(w, k, even, odd);
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) {
      Vec x = splat(a[(size_t)r * stride + k]);
      c[r][0] = fma(x, even[0], c[r][0]);
      c[r][1] = fma(x, even[1], c[r][1]);
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) {
      Vec x = splat(a[(size_t)r * stride + k + 1]);
      c[r][0] = fma(x, odd[0], c[r][0]);
      c[r][1] = fma(x, odd[1], c[r][1]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) sink(r, c[r][0], c[r][1]);
}

template <class Weight, class Sink>
void product_floats(const Input& in, int row, int rows, const Weight* w, Sink&& sink) {
  in_pieces<FLOAT_ROWS>(rows, [&](int first, int count) {
    const float* a = in.floats + (size_t)(row + first) * in.stride;
    auto part = [&](int r, Vec low, Vec high) { sink(row + first + r, low, high); };
    switch (count) {
#define ROWS(n)                                                                        \
  case n:                                                                              \
    if constexpr (n <= FLOAT_ROWS) float_rows<n>(a, in.stride, in.columns, w, part);   \
    break;
      CASES(ROWS)
#undef ROWS
    }
  });
}

// Rows `row` up to `row + rows` of the input times one panel, its bias added. `next`: the panel
// that the calling thread is likely to be given after this one.
template <class Sink>
void product(const Matrix& m, const Input& in, int row, int rows, int panel, [[maybe_unused]] int next,
             Sink&& sink) {
  const char* w = panel_of(m, panel);
  const float* bias = m.bias ? m.bias + panel * PANEL : nullptr;
  auto biased = [&](int r, Vec low, Vec high) {
    if (bias) low = add(low, load(bias)), high = add(high, load(bias + 16));
    sink(r, low, high);
  };
  switch (m.format) {
    case F32: return product_floats(in, row, rows, (const float*)w, biased);
    case BF16:
#if defined(__AMX_BF16__)
      return product_amx(in, row, rows, (const bf16*)w,
                         next < num_panels(m) ? panel_of(m, next) : nullptr, biased);
#elif defined(__AVX512BF16__)
      return product_halves(in, row, rows, (const bf16*)w, biased);
#else
      return product_floats(in, row, rows, (const bf16*)w, biased);
#endif
    case Q8: return product_bytes<Q8>(in, row, rows, w, biased);
    case Q4: return product_bytes<Q4>(in, row, rows, w, biased);
  }
}
