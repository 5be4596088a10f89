// What the kernels know of a model, and what a step is asked to compute.
//
// The structures are filled by radix_engine/cpu/library.py, which repeats their fields.
#pragma once
#include "kv.h"
#include "matrix.h"

struct Layer {
  Matrix qkv;      // query heads, K heads, V heads
  Matrix output;
  Matrix gate_up;  // panels of 16 gates and the 16 ups that belong to them
  Matrix down;
  const float* input_norm;
  const float* mlp_norm;
  const float* query_norm;  // null: none
  const float* key_norm;
  char* kv;         // this layer's blocks
  int32_t window;   // tokens that a query sees, itself included; 0: all
  int32_t unused;
};

struct Model {
  int32_t layers;
  int32_t hidden;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t inner;
  int32_t vocab;
  int32_t kv_type;
  float eps;
  float softcap;
  const void* embedding;     // [vocab, hidden], floats or bf16
  int32_t embedding_halves;
  int32_t unused;
  const float* frequencies;  // [head_dim / 2] radians per position
  const float* norm;
  const Layer* layer;
  Matrix head;
};

// Spans of tokens, one after another.
struct Batch {
  int32_t tokens;
  int32_t spans;
  const int32_t* starts;   // [spans] position of the first token
  const int32_t* lengths;  // [spans]
  const int32_t* logits;   // [spans] how many of the last tokens want logits
  const int32_t* tables;   // block ids of all spans
  const int64_t* table_at; // [spans] where a span's begin
  const int32_t* ids;      // [tokens]
  float* out;              // [wanted rows, vocab]
};
