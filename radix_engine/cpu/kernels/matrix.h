// Weight matrices, laid out in panels of 32 outputs.
//
//   F32    [panel][column][32]           float
//   BF16   [panel][column pair][32][2]   bf16; the two of a pair lie together, as the
//                                        instructions for bf16 want them
//   Q8     [panel][group]{ scale [32] fp16 | value + 128 [8][32][4] }           4 columns together
//   Q4     [panel][group]{ scale [32], minimum [32] fp16 | nibbles [4][32][4] }
//
// Q4: byte i of quad j holds column 8j + i in its low half and column 8j + 4 + i in its high half.
// Outputs and columns are padded with zeros to multiples of 32.
#pragma once
#include "simd.h"

constexpr int PANEL = 32;  // outputs
constexpr int GROUP = 32;  // columns that share a scale

enum Format : int32_t { F32 = 0, BF16 = 1, Q8 = 2, Q4 = 3 };

// The same in radix_engine/cpu/library.py.
struct Matrix {
  int32_t format;
  int32_t outputs;
  int32_t columns;
  int32_t unused;
  const void* data;
  const float* bias;  // [outputs, padded], or null
};

INLINE int padded(int n) { return (n + 31) / 32 * 32; }

INLINE int num_panels(const Matrix& m) { return padded(m.outputs) / PANEL; }

INLINE size_t group_bytes(int format) {
  switch (format) {
    case F32: return GROUP * PANEL * 4;
    case BF16: return GROUP * PANEL * 2;
    case Q8: return PANEL * 2 + GROUP * PANEL;
    default: return PANEL * 4 + GROUP * PANEL / 2;
  }
}

INLINE size_t panel_bytes(int format, int columns) {
  return padded(columns) / GROUP * group_bytes(format);
}

INLINE const char* panel_of(const Matrix& m, int panel) {
  return (const char*)m.data + panel * panel_bytes(m.format, m.columns);
}
