// Products with 8-bit and 4-bit weights: groups of 32 columns are multiplied as whole numbers,
// exactly, then scaled.
//
//   Q8:  scale * row_scale * (sum(value_u8 * row_i8) - 128 * sum(row_i8))
//   Q4:  scale * row_scale * sum(nibble * row_i8) + minimum * row_scale * sum(row_i8)
//
// Groups are added up in order.
#pragma once
#include "input.h"

#ifdef HAS_AVX512
// Per lane: four unsigned times four signed bytes, added to 32 bits.
INLINE __m512i dot4(__m512i sum, __m512i weights, __m512i row) {
#ifdef __AVX512VNNI__
  return _mm512_dpbusd_epi32(sum, weights, row);
#else
  // In 16 bits, even and odd bytes apart: maddubs would saturate at 255 * 127 * 2.
  __m512i even = _mm512_madd_epi16(_mm512_and_si512(weights, _mm512_set1_epi16(0xff)),
                                   _mm512_srai_epi16(_mm512_slli_epi16(row, 8), 8));
  __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(weights, 8), _mm512_srai_epi16(row, 8));
  return _mm512_add_epi32(sum, _mm512_add_epi32(even, odd));
#endif
}
struct Ints {
  __m512i v;
};
INLINE Ints no_ints() { return {_mm512_setzero_si512()}; }
INLINE Ints load_bytes(const void* p) { return {_mm512_loadu_si512(p)}; }
INLINE Ints splat_bytes(int32_t four) { return {_mm512_set1_epi32(four)}; }
INLINE Ints dot(Ints sum, Ints w, Ints row) { return {dot4(sum.v, w.v, row.v)}; }
INLINE Ints low_nibbles(Ints x) { return {_mm512_and_si512(x.v, _mm512_set1_epi8(15))}; }
INLINE Ints high_nibbles(Ints x) { return low_nibbles({_mm512_srli_epi16(x.v, 4)}); }
INLINE Ints minus(Ints x, int32_t y) { return {_mm512_sub_epi32(x.v, _mm512_set1_epi32(y))}; }
INLINE Vec to_floats(Ints x) { return {_mm512_cvtepi32_ps(x.v)}; }
constexpr int BYTE_ROWS = 6;
#else
struct Ints {
  __m256i a, b;
};
INLINE __m256i dot4(__m256i sum, __m256i weights, __m256i row) {
  __m256i even = _mm256_madd_epi16(_mm256_and_si256(weights, _mm256_set1_epi16(0xff)),
                                   _mm256_srai_epi16(_mm256_slli_epi16(row, 8), 8));
  __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(weights, 8), _mm256_srai_epi16(row, 8));
  return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
INLINE Ints no_ints() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
INLINE Ints load_bytes(const void* p) {
  return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)p + 1)};
}
INLINE Ints splat_bytes(int32_t four) {
  return {_mm256_set1_epi32(four), _mm256_set1_epi32(four)};
}
INLINE Ints dot(Ints sum, Ints w, Ints row) {
  return {dot4(sum.a, w.a, row.a), dot4(sum.b, w.b, row.b)};
}
INLINE Ints low_nibbles(Ints x) {
  __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask)};
}
INLINE Ints high_nibbles(Ints x) {
  return low_nibbles({_mm256_srli_epi16(x.a, 4), _mm256_srli_epi16(x.b, 4)});
}
INLINE Ints minus(Ints x, int32_t y) {
  __m256i all = _mm256_set1_epi32(y);
  return {_mm256_sub_epi32(x.a, all), _mm256_sub_epi32(x.b, all)};
}
INLINE Vec to_floats(Ints x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
constexpr int BYTE_ROWS = 1;
#endif

INLINE int32_t four_bytes(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, 4);
  return four;
}

template <int FORMAT, int R, class Sink>
INLINE void byte_rows(const Input& in, int row, const char* w, Sink&& sink) {
  Vec total[R][2];
  for (int r = 0; r < R; r++) total[r][0] = total[r][1] = zero();
  const int8_t* bytes = in.bytes + (size_t)row * in.stride;
  const int groups = in.groups();
  const size_t step = group_bytes(FORMAT);
  for (int g = 0; g < groups; g++, w += step) {
    if (R <= 2)
      for (size_t ahead = 0; ahead < step; ahead += 64)
        _mm_prefetch(w + 4 * step + ahead, _MM_HINT_T0);
    Ints dots[R][2];
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) dots[r][0] = dots[r][1] = no_ints();
    const char* values = w + (FORMAT == Q8 ? 1 : 2) * PANEL * 2;
#pragma GCC unroll 8
    for (int quad = 0; quad < (FORMAT == Q8 ? 8 : 4); quad++) {
      Ints left = load_bytes(values + quad * 128), right = load_bytes(values + quad * 128 + 64);
      if (FORMAT == Q8) {
#pragma GCC unroll 6
        for (int r = 0; r < R; r++) {
          Ints x = splat_bytes(four_bytes(bytes + (size_t)r * in.stride + g * GROUP + quad * 4));
          dots[r][0] = dot(dots[r][0], left, x);
          dots[r][1] = dot(dots[r][1], right, x);
        }
      } else {
        Ints low[2] = {low_nibbles(left), low_nibbles(right)};
        Ints high[2] = {high_nibbles(left), high_nibbles(right)};
#pragma GCC unroll 6
        for (int r = 0; r < R; r++) {
          const int8_t* x = bytes + (size_t)r * in.stride + g * GROUP + quad * 8;
          Ints first = splat_bytes(four_bytes(x)), second = splat_bytes(four_bytes(x + 4));
          for (int half = 0; half < 2; half++)
            dots[r][half] = dot(dot(dots[r][half], low[half], first), high[half], second);
        }
      }
    }
    const uint16_t* scale = (const uint16_t*)w;
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
      size_t at = (size_t)(row + r) * groups + g;
      Vec row_scale = splat(in.scales[at]);
      for (int half = 0; half < 2; half++) {
        Ints exact = dots[r][half];
        if (FORMAT == Q8) exact = minus(exact, 128 * in.sums[at]);
        Vec factor = mul(load_fp16(scale + half * 16), row_scale);
        total[r][half] = fma(to_floats(exact), factor, total[r][half]);
        if (FORMAT == Q4) {
          Vec offset = mul(row_scale, splat((float)in.sums[at]));
          total[r][half] = fma(load_fp16(scale + PANEL + half * 16), offset, total[r][half]);
        }
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; r++) sink(row + r, total[r][0], total[r][1]);
}

template <int FORMAT, class Sink>
void product_bytes(const Input& in, int row, int rows, const char* w, Sink&& sink) {
  int r = 0;
  for (; rows - r >= BYTE_ROWS; r += BYTE_ROWS) byte_rows<FORMAT, BYTE_ROWS>(in, row + r, w, sink);
  for (; r < rows; r++) byte_rows<FORMAT, 1>(in, row + r, w, sink);
}
