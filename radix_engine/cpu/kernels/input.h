// The rows that a matrix is multiplied by, in the form that its format multiplies.
//
// F32 and BF16 are what the rows are kept in; for Q8 and Q4 each group of 32 columns becomes
// int8 values with one scale (`quantize_row`), as llama.cpp's Q8 activations are.
#pragma once
#include "buffers.h"
#include "matrix.h"

enum Form { FLOATS, HALVES, BYTES };

INLINE Form form_of(int format) {
  if (format == Q8 || format == Q4) return BYTES;
#ifdef __AVX512BF16__
  if (format == BF16) return HALVES;
#endif
  return FLOATS;
}

struct Input {
  Form form = FLOATS;
  int columns = 0;  // padded
  int stride = 0;   // elements from row to row
  float* floats = nullptr;
  bf16* halves = nullptr;
  int8_t* bytes = nullptr;
  float* scales = nullptr;  // [row][group]
  int32_t* sums = nullptr;  // [row][group]: of the group's int8 values
  int groups() const { return columns / GROUP; }
};

// Bytes that `place` takes for so many rows. Rows are padded, so that a tile of 16 can be read
// anywhere, and their stride is no power of two, which would put a tile's rows into the same
// lines of a cache.
INLINE size_t input_bytes(Form form, int columns, int rows) {
  size_t stride = padded(columns) + 32, n = (size_t)(rows + 31) / 32 * 32;
  size_t groups = stride / GROUP;
  if (form == HALVES) return n * stride * 2;
  if (form == FLOATS) return n * stride * 4;
  return n * (stride * 4 + stride + groups * 8);
}

INLINE Input place(Form form, int columns, int rows, char* memory) {
  Input in;
  in.form = form;
  in.columns = padded(columns);
  in.stride = in.columns + 32;
  size_t n = (size_t)(rows + 31) / 32 * 32;
  if (form == HALVES) {
    in.halves = (bf16*)memory;
    return in;
  }
  in.floats = (float*)memory;
  if (form == FLOATS) return in;
  in.scales = in.floats + n * in.stride;
  in.sums = (int32_t*)(in.scales + n * in.groups());
  in.bytes = (int8_t*)(in.sums + n * in.groups());
  return in;
}

// Sixteen values of a row. Of BYTES, `quantize_row` must follow when the row is whole.
INLINE void put(const Input& in, int row, int column, Vec v) {
  size_t at = (size_t)row * in.stride + column;
  if (in.form == HALVES)
    store_bf16(in.halves + at, v);
  else
    store(in.floats + at, v);
}

// Zeros behind `columns`, where the padding is.
INLINE void pad_row(const Input& in, int row, int columns) {
  for (int c = columns; c < in.columns; c += LANES) put(in, row, c, zero());
}

INLINE void quantize_row(const Input& in, int row) {
  if (in.form != BYTES) return;
  const float* from = in.floats + (size_t)row * in.stride;
  int8_t* to = in.bytes + (size_t)row * in.stride;
  for (int g = 0; g < in.groups(); g++) {
    Vec a = load(from + g * GROUP), b = load(from + g * GROUP + 16);
    float top = largest(max(abs(a), abs(b)));
    float scale = top / 127.f, inverse = top > 0 ? 127.f / top : 0.f;
    store_i8(to + g * GROUP, mul(a, splat(inverse)));
    store_i8(to + g * GROUP + 16, mul(b, splat(inverse)));
    int32_t total = 0;
    for (int i = 0; i < GROUP; i++) total += to[g * GROUP + i];
    in.scales[(size_t)row * in.groups() + g] = scale;
    in.sums[(size_t)row * in.groups() + g] = total;
  }
}
