// Tile registers of AMX: 8 of 16 rows x 64 bytes. A thread sets their shapes before it uses them.
#pragma once
#include "simd.h"

#ifdef __AMX_BF16__
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// The instructions' wrappers in g++ 12 do not say which memory they read or write; this does.
INLINE void memory_is_used() { __asm__ volatile("" ::: "memory"); }

INLINE void shape_tiles(const TileShapes& shapes) {
  memory_is_used();
  _tile_loadconfig(&shapes);
}

// All eight full: products. Tiles 0-3 add up, 4 and 5 hold rows, 6 and 7 weights.
INLINE void shape_tiles_for_products() {
  TileShapes shapes;
  for (int i = 0; i < 8; i++) shapes.row_bytes[i] = 64, shapes.rows[i] = 16;
  shape_tiles(shapes);
}

// Attention, scores: as for products.
INLINE void shape_tiles_for_scores() { shape_tiles_for_products(); }

// Attention, values: tiles 0-3 add up, 5 and 6 hold the weights of 16 tokens (16 rows x 16 bf16), 4
// and 7 the values of a block (8 pairs of tokens x 16 dimensions).
INLINE void shape_tiles_for_values() {
  TileShapes shapes;
  for (int i = 0; i < 8; i++) shapes.row_bytes[i] = 64, shapes.rows[i] = 16;
  shapes.row_bytes[5] = shapes.row_bytes[6] = 32;
  shapes.rows[4] = shapes.rows[7] = 8;
  shape_tiles(shapes);
}

// Tiles 0 up to N - 1.
template <int N>
INLINE void zero_tiles() {
  _tile_zero(0);
  if (N > 1) {
    _tile_zero(1);
  }
  if (N > 2) {
    _tile_zero(2);
  }
  if (N > 3) {
    _tile_zero(3);
  }
}

INLINE void release_tiles() { _tile_release(); }
#else
INLINE void shape_tiles_for_products() {}
INLINE void release_tiles() {}
#endif
