// Laying weights out in panels.
//
// A panel is two halves of 16 outputs; `halves[i]` names the source row of half i's first output,
// -1 for none. So a matrix may be packed part by part, and gates beside the ups that belong to
// them.
#pragma once
#include "matrix.h"

enum Source : int32_t { FROM_F32 = 0, FROM_BF16 = 1, FROM_F16 = 2 };

INLINE float weight_at(const void* from, int type, size_t at) {
  if (type == FROM_F32) return ((const float*)from)[at];
  const uint16_t bits = ((const uint16_t*)from)[at];
  if (type == FROM_F16) return _cvtsh_ss(bits);
  const uint32_t wide = (uint32_t)bits << 16;
  float x;
  std::memcpy(&x, &wide, 4);
  return x;
}

INLINE bf16 nearest_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return (bf16)(bits >> 16 | 0x40);  // NaN stays one
  return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Byte offset of an output's value (or nibble) within its group of columns.
INLINE int q8_at(int output, int column) { return PANEL * 2 + column / 4 * 128 + output * 4 + column % 4; }
INLINE int q4_at(int output, int column) {
  return PANEL * 4 + column / 8 * 128 + output * 4 + column % 4;
}

struct Group {
  float scale = 0, minimum = 0;
  uint8_t values[GROUP] = {};  // Q8: plus 128
};

INLINE void put_group(char* group, int format, int output, const Group& g) {
  ((uint16_t*)group)[output] = _cvtss_sh(g.scale, 0);
  if (format == Q8) {
    for (int c = 0; c < GROUP; c++) group[q8_at(output, c)] = (char)g.values[c];
    return;
  }
  ((uint16_t*)group)[PANEL + output] = _cvtss_sh(g.minimum, 0);
  for (int c = 0; c < GROUP; c++) {
    char& byte = group[q4_at(output, c)];
    byte = (char)(c % 8 < 4 ? ((uint8_t)byte & 0xf0) | g.values[c]
                            : ((uint8_t)byte & 0x0f) | g.values[c] << 4);
  }
}

// Round to nearest, as GGUF's Q8_0 and Q4_1 are made: a scale, and for 4 bits a minimum, of fp16.
INLINE Group quantize_group(const float* x, int format) {
  Group g;
  float low = x[0], high = x[0];
  for (int i = 1; i < GROUP; i++) low = std::fmin(low, x[i]), high = std::fmax(high, x[i]);
  const float most = std::fmax(-low, high);
  if (format == Q8) {
    g.scale = _cvtsh_ss(_cvtss_sh(most / 127.f, 0));
    const float inverse = g.scale > 0 ? 1.f / g.scale : 0.f;
    for (int i = 0; i < GROUP; i++) {
      const float rounded = std::nearbyint(x[i] * inverse);
      g.values[i] = (uint8_t)(128 + (int)std::fmax(-127.f, std::fmin(127.f, rounded)));
    }
    return g;
  }
  g.scale = _cvtsh_ss(_cvtss_sh((high - low) / 15.f, 0));
  g.minimum = _cvtsh_ss(_cvtss_sh(low, 0));
  const float inverse = g.scale > 0 ? 1.f / g.scale : 0.f;
  for (int i = 0; i < GROUP; i++) {
    const float rounded = std::nearbyint((x[i] - g.minimum) * inverse);
    g.values[i] = (uint8_t)std::fmax(0.f, std::fmin(15.f, rounded));
  }
  return g;
}

// GGUF's own blocks of 32: Q4_0 {fp16 d, nibbles}: d * (q - 8); Q4_1 {d, m, nibbles}: d * q + m;
// Q8_0 {d, int8}. Nibble i is column i, the upper half of byte i column 16 + i.
enum Blocks : int32_t { Q4_0_BLOCKS = 0, Q4_1_BLOCKS = 1, Q8_0_BLOCKS = 2 };

INLINE int block_bytes_of(int kind) { return kind == Q4_0_BLOCKS ? 18 : kind == Q4_1_BLOCKS ? 20 : 34; }

INLINE Group read_block(const uint8_t* block, int kind) {
  Group g;
  uint16_t d, m;
  std::memcpy(&d, block, 2);
  std::memcpy(&m, block + 2, 2);
  g.scale = _cvtsh_ss(d);
  if (kind == Q8_0_BLOCKS) {
    for (int i = 0; i < GROUP; i++) g.values[i] = (uint8_t)(128 + (int8_t)block[2 + i]);
    return g;
  }
  g.minimum = kind == Q4_1_BLOCKS ? _cvtsh_ss(m) : -8 * g.scale;
  const uint8_t* nibbles = block + (kind == Q4_1_BLOCKS ? 4 : 2);
  for (int i = 0; i < 16; i++) {
    g.values[i] = nibbles[i] & 15;
    g.values[16 + i] = nibbles[i] >> 4;
  }
  return g;
}

// fill(output of the panel, source row) for the rows of one panel.
template <class F>
INLINE void each_output(const int32_t* halves, int panel, int rows, F&& fill) {
  for (int half = 0; half < 2; half++) {
    const int first = halves[panel * 2 + half];
    if (first < 0) continue;
    for (int i = 0; i < 16 && first + i < rows; i++) fill(half * 16 + i, first + i);
  }
}

INLINE void pack_floats(char* panel, int format, int output, const void* from, int type, int columns,
                        size_t row) {
  const size_t start = row * columns;
  if (format == F32)
    for (int c = 0; c < columns; c++) ((float*)panel)[c * PANEL + output] = weight_at(from, type, start + c);
  else if (format == BF16)
    for (int c = 0; c < columns; c++) {
      bf16& to = ((bf16*)panel)[(c / 2 * PANEL + output) * 2 + c % 2];
      to = type == FROM_BF16 ? ((const bf16*)from)[start + c]
                             : nearest_bf16(weight_at(from, type, start + c));
    }
  else
    for (int c = 0; c < columns; c += GROUP) {
      float x[GROUP] = {};
      for (int i = 0; i < GROUP && c + i < columns; i++) x[i] = weight_at(from, type, start + c + i);
      put_group(panel + c / GROUP * group_bytes(format), format, output, quantize_group(x, format));
    }
}
