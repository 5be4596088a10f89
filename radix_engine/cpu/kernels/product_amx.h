// bf16 products with AMX: tiles of 16 rows x 32 columns times 32 columns x 16 outputs.
//
// A single row goes through the same tiles as sixteen (the rows beyond it are ignored): the
// instruction adds up in an order of its own, so another one would give other bits.
#pragma once
#include <algorithm>

#include "amx.h"
#include "input.h"

template <class Sink>
INLINE void emit_tiles(const float* scratch, int row, int rows, Sink&& sink) {
  memory_is_used();
  for (int r = 0; r < rows; r++)
    sink(row + r, load(scratch + r * PANEL), load(scratch + r * PANEL + 16));
}

// The calling thread's tiles are shaped for products. `next`: a panel that this thread is likely to
// need soon, brought nearer meanwhile; null: none.
template <class Sink>
void product_amx(const Input& in, int row, int rows, const bf16* w, const char* next, Sink&& sink) {
  alignas(64) float scratch[32 * PANEL];
  const size_t stride = (size_t)in.stride * 2;
  memory_is_used();
  int r = 0;
  // The whole next panel, spread over the steps of this one's first 256 rows.
  const char* ahead = next && rows > 32 ? next : nullptr;
  const int lines = rows > 128 ? 4 : 8;  // per step of 32 columns
  const char* behind = next + (size_t)in.columns * PANEL * 2;
  for (; rows - r > 16; r += 32) {
    const bf16* a = in.halves + (size_t)(row + r) * in.stride;
    const bf16* b = a + (size_t)16 * in.stride;
    zero_tiles<4>();
    for (int k = 0; k < in.columns; k += 32) {
      _tile_stream_loadd(4, a + k, stride);
      _tile_loadd(6, w + (size_t)k * PANEL, PANEL * 4);
      _tile_loadd(7, w + (size_t)k * PANEL + 32, PANEL * 4);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      if (ahead && ahead < behind) {
        for (int i = 0; i < lines; i++) _mm_prefetch(ahead + i * 64, _MM_HINT_T1);
        ahead += lines * 64;
      }
      _tile_stream_loadd(5, b + k, stride);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, scratch, PANEL * 4);
    _tile_stored(1, scratch + 16, PANEL * 4);
    _tile_stored(2, scratch + 16 * PANEL, PANEL * 4);
    _tile_stored(3, scratch + 16 * PANEL + 16, PANEL * 4);
    emit_tiles(scratch, row + r, rows - r < 32 ? rows - r : 32, sink);
  }
  if (r >= rows) return;
  const bf16* a = in.halves + (size_t)(row + r) * in.stride;
  zero_tiles<2>();
  for (int k = 0; k < in.columns; k += 32) {
    _tile_stream_loadd(4, a + k, stride);
    _tile_loadd(6, w + (size_t)k * PANEL, PANEL * 4);
    _tile_loadd(7, w + (size_t)k * PANEL + 32, PANEL * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  _tile_stored(0, scratch, PANEL * 4);
  _tile_stored(1, scratch + 16, PANEL * 4);
  emit_tiles(scratch, row + r, rows - r, sink);
}
