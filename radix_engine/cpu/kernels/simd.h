// Sixteen floats at a time: one AVX-512 register, or two of AVX2.
//
// All arithmetic of the kernels goes through these functions, in one fixed order. No operation is
// fused or reordered by the compiler (the library is built with -ffp-contract=off), so a row's
// result does not depend on how many rows a loop was unrolled for.
#pragma once
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#define INLINE static inline __attribute__((always_inline))

typedef uint16_t bf16;

constexpr int LANES = 16;

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define HAS_AVX512 1
struct Vec {
  __m512 v;
};

INLINE Vec zero() { return {_mm512_setzero_ps()}; }
INLINE Vec splat(float x) { return {_mm512_set1_ps(x)}; }
INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
INLINE Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
INLINE Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
INLINE Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
INLINE Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
INLINE Vec abs(Vec a) { return {_mm512_abs_ps(a.v)}; }
// a * b + c, rounded once; and c - a * b.
INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
INLINE Vec fnma(Vec a, Vec b, Vec c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
INLINE Vec round(Vec a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT)}; }
// a * 2^n for a whole n.
INLINE Vec scale2(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }
INLINE float sum(Vec a) { return _mm512_reduce_add_ps(a.v); }
INLINE float largest(Vec a) { return _mm512_reduce_max_ps(a.v); }
// Of four vectors each: `f` of its lanes, put together in one order.
template <class F512, class F256, class F128>
INLINE void fold_four(float* to, const Vec (&x)[4], F512&& f, F256&& f256, F128&& f128) {
  const __m512 ab = f(_mm512_unpacklo_ps(x[0].v, x[1].v), _mm512_unpackhi_ps(x[0].v, x[1].v));
  const __m512 cd = f(_mm512_unpacklo_ps(x[2].v, x[3].v), _mm512_unpackhi_ps(x[2].v, x[3].v));
  const __m512d first = _mm512_castps_pd(ab), second = _mm512_castps_pd(cd);
  const __m512 all = f(_mm512_castpd_ps(_mm512_unpacklo_pd(first, second)),
                       _mm512_castpd_ps(_mm512_unpackhi_pd(first, second)));
  const __m256 half = f256(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
  _mm_storeu_ps(to, f128(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}
INLINE void store_sums(float* to, const Vec (&x)[4]) {
  fold_four(to, x, [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); },
            [](__m256 a, __m256 b) { return _mm256_add_ps(a, b); },
            [](__m128 a, __m128 b) { return _mm_add_ps(a, b); });
}
INLINE void store_largest(float* to, const Vec (&x)[4]) {
  fold_four(to, x, [](__m512 a, __m512 b) { return _mm512_max_ps(a, b); },
            [](__m256 a, __m256 b) { return _mm256_max_ps(a, b); },
            [](__m128 a, __m128 b) { return _mm_max_ps(a, b); });
}
// The lanes from `first` up to `end` of a, the others of b.
INLINE Vec between(Vec a, Vec b, int first, int end) {
  uint32_t upto = end >= 16 ? 0xffffu : end <= 0 ? 0u : (1u << end) - 1;
  uint32_t before = first >= 16 ? 0xffffu : first <= 0 ? 0u : (1u << first) - 1;
  return {_mm512_mask_mov_ps(b.v, (__mmask16)(upto & ~before), a.v)};
}
INLINE Vec load_bf16(const bf16* p) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
INLINE Vec load_fp16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))};
}
INLINE Vec load_i8(const int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)))};
}
INLINE void store_i8(int8_t* p, Vec a) {
  _mm_storeu_si128((__m128i*)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a.v)));
}
// 16 pairs of bf16: their first and their second halves.
INLINE void load_pairs(const bf16* p, Vec& first, Vec& second) {
  __m512i both = _mm512_loadu_si512(p);
  first = {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16))};
  second = {_mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000)))};
}
INLINE __m256i narrow(Vec a) {
#ifdef __AVX512BF16__
  return (__m256i)_mm512_cvtneps_pbh(a.v);
#else
  __m512i bits = _mm512_castps_si512(a.v);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
#endif
}
#else
struct Vec {
  __m256 a, b;
};

#define EACH(f, x, y) {f(x.a, y.a), f(x.b, y.b)}
INLINE Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
INLINE Vec splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE void store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
INLINE Vec add(Vec x, Vec y) { return EACH(_mm256_add_ps, x, y); }
INLINE Vec sub(Vec x, Vec y) { return EACH(_mm256_sub_ps, x, y); }
INLINE Vec mul(Vec x, Vec y) { return EACH(_mm256_mul_ps, x, y); }
INLINE Vec div(Vec x, Vec y) { return EACH(_mm256_div_ps, x, y); }
INLINE Vec max(Vec x, Vec y) { return EACH(_mm256_max_ps, x, y); }
INLINE Vec min(Vec x, Vec y) { return EACH(_mm256_min_ps, x, y); }
INLINE Vec abs(Vec x) {
  __m256 sign = _mm256_set1_ps(-0.f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
INLINE Vec fma(Vec x, Vec y, Vec z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
INLINE Vec fnma(Vec x, Vec y, Vec z) {
  return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
}
INLINE Vec round(Vec x) {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, nearest), _mm256_round_ps(x.b, nearest)};
}
INLINE __m256 scale2_half(__m256 x, __m256 n) {
  // Two factors, so that neither leaves the range of exponents; n lies within -252 to 254.
  __m256i whole = _mm256_cvtps_epi32(n);
  __m256i half = _mm256_srai_epi32(whole, 1);
  __m256i rest = _mm256_sub_epi32(whole, half);
  __m256i one = _mm256_set1_epi32(127);
  __m256 left = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, one), 23));
  __m256 right = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, one), 23));
  return _mm256_mul_ps(_mm256_mul_ps(x, left), right);
}
INLINE Vec scale2(Vec x, Vec n) { return EACH(scale2_half, x, n); }
INLINE float sum8(__m256 x) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
INLINE float sum(Vec x) { return sum8(_mm256_add_ps(x.a, x.b)); }
INLINE float largest(Vec x) {
  __m256 m = _mm256_max_ps(x.a, x.b);
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
INLINE void store_sums(float* to, const Vec (&x)[4]) {
  for (int i = 0; i < 4; i++) to[i] = sum(x[i]);
}
INLINE void store_largest(float* to, const Vec (&x)[4]) {
  for (int i = 0; i < 4; i++) to[i] = largest(x[i]);
}
INLINE Vec between(Vec x, Vec y, int first, int end) {
  __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  __m256i high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
  __m256i from = _mm256_set1_epi32(first - 1), to = _mm256_set1_epi32(end);
  auto mask = [&](__m256i i) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_cmpgt_epi32(i, from), _mm256_cmpgt_epi32(to, i)));
  };
  return {_mm256_blendv_ps(y.a, x.a, mask(low)), _mm256_blendv_ps(y.b, x.b, mask(high))};
}
INLINE __m256 widen8(__m128i p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(p), 16));
}
INLINE Vec load_bf16(const bf16* p) {
  return {widen8(_mm_loadu_si128((const __m128i*)p)), widen8(_mm_loadu_si128((const __m128i*)p + 1))};
}
INLINE Vec load_fp16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
          _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p + 1))};
}
INLINE Vec load_i8(const int8_t* p) {
  __m128i all = _mm_loadu_si128((const __m128i*)p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(all)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(all, 8)))};
}
INLINE void store_i8(int8_t* p, Vec x) {
  __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b));
  words = _mm256_permute4x64_epi64(words, 0xd8);
  __m256i bytes = _mm256_packs_epi16(words, words);
  bytes = _mm256_permute4x64_epi64(bytes, 0xd8);
  _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128(bytes));
}
INLINE void load_pairs(const bf16* p, Vec& first, Vec& second) {
  __m256i x = _mm256_loadu_si256((const __m256i*)p), y = _mm256_loadu_si256((const __m256i*)p + 1);
  __m256i upper = _mm256_set1_epi32((int)0xffff0000);
  first = {_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)),
           _mm256_castsi256_ps(_mm256_slli_epi32(y, 16))};
  second = {_mm256_castsi256_ps(_mm256_and_si256(x, upper)),
            _mm256_castsi256_ps(_mm256_and_si256(y, upper))};
}
INLINE __m256i narrow8(__m256 x) {
  __m256i bits = _mm256_castps_si256(x);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  return _mm256_srli_epi32(rounded, 16);
}
INLINE __m256i narrow(Vec x) {
  __m256i packed = _mm256_packus_epi32(narrow8(x.a), narrow8(x.b));
  return _mm256_permute4x64_epi64(packed, 0xd8);
}
#undef EACH
#endif

INLINE void store_bf16(bf16* p, Vec a) { _mm256_storeu_si256((__m256i*)p, narrow(a)); }
INLINE void store_two_bf16(bf16* p, Vec a, Vec b) {
#ifdef __AVX512BF16__
  _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(b.v, a.v));
#else
  store_bf16(p, a), store_bf16(p + LANES, b);
#endif
}

// 2^x. Relative error about 2e-7; 0 below 2^-126. NaN stays NaN.
INLINE Vec exp2(Vec x) {
  Vec clamped = max(splat(-150.f), x);  // in this order a NaN in x passes
  clamped = min(splat(150.f), clamped);
  Vec whole = round(clamped);
  Vec part = sub(clamped, whole);
  Vec p = splat(1.5403530e-4f);
  p = fma(p, part, splat(1.3333558e-3f));
  p = fma(p, part, splat(9.6181291e-3f));
  p = fma(p, part, splat(5.5504109e-2f));
  p = fma(p, part, splat(2.4022651e-1f));
  p = fma(p, part, splat(6.9314718e-1f));
  p = fma(p, part, splat(1.f));
  return scale2(p, whole);
}

// 2^x with a relative error of 8e-5 (a fit that makes the largest error small): half the work where the result is
// rounded to bf16, an error of 2e-3, anyway. NaN stays NaN.
#ifdef HAS_AVX512
INLINE Vec rough_exp2(Vec x) {
  const Vec part = {_mm512_reduce_ps(x.v, _MM_FROUND_TO_NEG_INF)};  // behind the whole number
  Vec p = splat(7.8022572e-2f);
  p = fma(p, part, splat(2.2606527e-1f));
  p = fma(p, part, splat(6.9583678e-1f));
  p = fma(p, part, splat(9.9992462e-1f));
  return scale2(p, x);  // takes the whole number below
}
#else
INLINE Vec rough_exp2(Vec x) { return exp2(x); }
#endif

constexpr float LOG2E = 1.44269504f;

// x / (1 + e^-x)
INLINE Vec silu(Vec x) {
  Vec e = exp2(mul(x, splat(-LOG2E)));
  return div(x, add(e, splat(1.f)));
}

#ifdef HAS_AVX512
// The same where the result is rounded to bf16: relative error 2e-4, a third of the work.
INLINE Vec rough_silu(Vec x) {
  Vec e = rough_exp2(mul(x, splat(-LOG2E)));
  return mul(x, {_mm512_rcp14_ps(add(e, splat(1.f)).v)});
}
#else
INLINE Vec rough_silu(Vec x) { return silu(x); }
#endif

INLINE Vec tanh(Vec x) {
  Vec e = exp2(mul(x, splat(2 * LOG2E)));
  return sub(splat(1.f), div(splat(2.f), add(e, splat(1.f))));
}
