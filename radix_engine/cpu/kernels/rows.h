// What is done to single rows between the products: norms, rotation, writing K and V.
#pragma once
#include <vector>

#include "input.h"
#include "kv.h"

// RMS norm (Zhang and Sennrich, 2019): x * weight / sqrt(mean(x^2) + eps).
INLINE float inverse_rms(const float* x, int count, float eps) {
  Vec squares = zero();
  for (int i = 0; i < count; i += LANES) squares = fma(load(x + i), load(x + i), squares);
  return 1.f / std::sqrt(sum(squares) / count + eps);
}

INLINE void norm_row(const float* x, const float* weight, int count, float eps, const Input& to,
                     int row) {
  const Vec scale = splat(inverse_rms(x, count, eps));
  for (int i = 0; i < count; i += LANES)
    put(to, row, i, mul(mul(load(x + i), scale), load(weight + i)));
  quantize_row(to, row);
}

INLINE void norm_head(float* x, const float* weight, int count, float eps) {
  const Vec scale = splat(inverse_rms(x, count, eps));
  for (int i = 0; i < count; i += LANES)
    store(x + i, mul(mul(load(x + i), scale), load(weight + i)));
}

// Cosines and sines of all positions so far asked for: [position][half]{cos..., sin...}.
class Rotations {
 public:
  Rotations(const float* frequencies, int half) : frequencies_(frequencies), half_(half) {}

  // Not while others read.
  void reserve(int positions) {
    int known = (int)(table_.size() / (2 * half_));
    if (positions <= known) return;
    int wanted = std::max(positions, 2 * known);
    table_.resize((size_t)wanted * 2 * half_);
    for (int p = known; p < wanted; p++)
      for (int i = 0; i < half_; i++) {
        // The angle is rounded to a float, as the models were trained with.
        const double angle = (float)p * frequencies_[i];
        table_[((size_t)p * 2) * half_ + i] = (float)std::cos(angle);
        table_[((size_t)p * 2 + 1) * half_ + i] = (float)std::sin(angle);
      }
  }

  const float* cosines(int position) const { return &table_[(size_t)position * 2 * half_]; }

 private:
  const float* frequencies_;
  const int half_;
  std::vector<float> table_;
};

// Rotary positions (Su et al., 2021): dimension i turns together with i + half.
INLINE void rotate_head(float* x, const float* cosines, int half) {
  const float* sines = cosines + half;
  if (half % LANES == 0) {
    for (int i = 0; i < half; i += LANES) {
      Vec a = load(x + i), b = load(x + half + i), c = load(cosines + i), s = load(sines + i);
      store(x + i, fnma(b, s, mul(a, c)));
      store(x + half + i, fma(a, s, mul(b, c)));
    }
    return;
  }
  for (int i = 0; i < half; i++) {
    const float a = x[i], b = x[half + i];
    x[i] = std::fmaf(-b, sines[i], a * cosines[i]);
    x[half + i] = std::fmaf(a, sines[i], b * cosines[i]);
  }
}
