// One step: the forward pass of all spans of a batch, phase by phase.
//
//   per layer:  norm | q, k, v | rotate, write K and V | attention | output | norm | gate, up | down
//   then:       norm | head, for the rows that want logits
//
// All threads go through `run` together (team.h). Behind the last layer's K and V only the rows
// that want logits are computed.
#pragma once
#include "attention_run.h"
#include "model.h"
#include "product.h"
#include "rows.h"
#include "team.h"

#ifdef __AVX512BF16__
typedef bf16 HalfElement;
#else
typedef float HalfElement;
#endif

// Memory that steps share, one after the other.
struct Workspace {
  Buffer residual, norm, head, qkv, queries, attended, inner, partials;
  std::vector<std::unique_ptr<Buffer>> own;  // per thread: its attention scratch and small rows
};

// With so few rows every thread computes the norms itself, instead of waiting for them.
constexpr int FEW_ROWS = 4;
constexpr int ROW_CHUNK = 256;  // rows of a product's task

class Step {
 public:
  Step(const Model& model, const KvLayout& kv, const Batch& batch, Rotations& rotations,
       Workspace& space, int threads);

  void run(int me);

  uint64_t waited_ns() const { return waited_; }

 private:
  enum { NORM, QKV, KEYS, ATTEND, GATHER, ATTENDED, OUTPUT, MLP_NORM, GATE_UP, INNER, DOWN, PHASES };
  enum { EMBED, HEAD_NORM, HEAD, TAIL_PHASES };  // of "layer" `layers`

  void plan_attention();
  void place_buffers();
  void set_phases();
  void run_layer(int me, int layer);
  void embed(int row);
  void write_keys(const Layer& layer, int row);
  void add_to_residual(int row, int panel, Vec low, Vec high);
  Input normed(int me, Phase& phase, const float* weight, int rows, const Input& shared);
  template <class Element>
  void attend(int me, int layer);
  template <class Sink>
  void multiply(int me, Phase& phase, const Matrix& m, const Input& in, int rows, Sink&& sink);

  const AttentionPlan& plan_of(int layer) const { return plans_[plan_index_[layer]]; }
  bool is_last(int layer) const { return layer == model_.layers - 1; }
  int row_tasks(int rows) const { return (rows + 7) / 8; }
  Phase& phase(int layer, int which) { return phases_[(size_t)layer * PHASES + which]; }

  template <class F>
  void pass(int me, Phase& phase, F&& task) {
    const uint64_t waited = work_through(phase, task);
    if (me == 0) waited_ += waited;
  }
  template <class F>
  void each_row(int me, Phase& phase, int rows, F&& f) {
    pass(me, phase, [&](int t) {
      for (int r = t * 8; r < rows && r < t * 8 + 8; r++) f(r);
    });
  }

  const Model& model_;
  const KvLayout& kv_;
  const Batch batch_;
  Rotations& rotations_;
  Workspace& space_;
  const int threads_;

  int wanted_ = 0;
  std::vector<int> position_, block_, rows_wanted_;
  std::vector<AttentionPlan> plans_;
  std::vector<int> plan_index_;                            // [layer]
  std::vector<std::unique_ptr<std::atomic<int>[]>> left_;  // [layer]
  std::vector<Partials> partials_;                         // [layer]
  std::unique_ptr<Phase[]> phases_;
  float* residual_ = nullptr;
  float* qkv_ = nullptr;
  int qkv_stride_ = 0;
  char* queries_ = nullptr;
  Input normed_, attended_, inner_, head_in_;
  uint64_t waited_ = 0;
};
