// Running the tasks of an attention plan.
#pragma once
#include <atomic>
#include <memory>

#include "attention_plan.h"
#include "buffers.h"
#include "input.h"

// One thread's memory for attention; some hundred kilobytes.
template <class Element>
struct AttentionScratch {
  ChunkScratch<Element> chunk;
  Tile<Element> tiles[AttentionPlanner::MAX_TILES];
  Partial all[AttentionPlanner::MAX_TILES];
  Partial next[2];
  TileScratch scores[2];
};

// Chunk results of decoding tokens until the last one is there:
// [slot][chunk][head]{ top, total, 14 unused, values [dims] }.
struct Partials {
  float* data = nullptr;
  std::atomic<int>* left = nullptr;  // [slot] tasks that have not ended
  int max_chunks = 0;
  int heads = 0;
  int dims = 0;

  static size_t row_floats(int dims) { return 16 + dims; }
  float* at(int slot, int chunk, int head) const {
    return data + ((size_t)(slot * max_chunks + chunk) * heads + head) * row_floats(dims);
  }
};

template <class Element>
class AttentionRun {
 public:
  // `queries` [token][head][dims], rotated. `out`: one row per AttentionPlan's out_row.
  AttentionRun(const Model& model, const KvLayout& kv, const AttentionPlan& plan, const char* memory,
               const Element* queries, const Input& out, const Partials& partials)
      : model_(model), kv_(kv), plan_(plan), memory_(memory), queries_(queries), out_(out),
        partials_(partials), group_(model.heads / model.kv_heads), dims_(kv.dims()) {
    how_ = scoring_of(model.head_dim, model.softcap);
  }

  void task(int index, AttentionScratch<Element>& scratch) const {
    const AttentionTask& task = plan_.tasks[index];
    for (int head = task.first_head; head < task.end_head; head++) one_head(task, head, scratch);
    if (!task.parts) return;
    for (int i = 0; i < task.num_tokens; i++) {
      const TokenInfo& info = token(task, i);
      if (info.slot < 0) continue;
      if (partials_.left[info.slot].fetch_sub(1, std::memory_order_acq_rel) == 1) join(info);
    }
  }

 private:
  const TokenInfo& token(const AttentionTask& task, int i) const {
    return plan_.info[plan_.tokens[task.first_token + i]];
  }

  void one_head(const AttentionTask& task, int head, AttentionScratch<Element>& scratch) const {
    const int rows = task.num_tokens * group_, tiles = (rows + TILE - 1) / TILE;
    int last = 0;
    for (int i = 0; i < task.num_tokens; i++) last = std::max(last, token(task, i).position);
    for (int t = 0; t < tiles; t++) fill_tile(task, head, t, rows, scratch.tiles[t]);
    const bool several = task.end_chunk - task.first_chunk > 1;
    if (several)
      for (int t = 0; t < tiles; t++) begin(scratch.all[t], scratch.tiles[t].rows, dims_);
    for (int chunk = task.first_chunk; chunk < task.end_chunk; chunk++) {
      ChunkView<Element> view;
      const int there = std::min(CHUNK, last + 1 - chunk * CHUNK);
      view_chunk(kv_, memory_, token(task, 0).table + chunk * CHUNK_BLOCKS, head, there,
                 scratch.chunk, view);
      const int blocks = view.blocks;
      for (int t = 0; t < tiles; t += 2) {
        const int count = std::min(2, tiles - t);
        int end = 0;
        for (int i = 0; i < count; i++)
          end = std::max(end, look(task, t + i, chunk, scratch.tiles[t + i]));
        if (end <= 0) continue;
        view.blocks = std::min(blocks, (end + BLOCK - 1) / BLOCK);
        Partial* results = several ? scratch.next : scratch.all + t;
        if (count == 2)
          attend_chunk<2>(kv_, scratch.tiles + t, view, how_, scratch.scores, results);
        else
          attend_chunk<1>(kv_, scratch.tiles + t, view, how_, scratch.scores, results);
        if (several)
          for (int i = 0; i < count; i++)
            merge(scratch.all[t + i], results[i], scratch.tiles[t + i].rows, dims_);
      }
    }
    for (int t = 0; t < tiles; t++) hand_out(task, head, t, scratch.tiles[t], scratch.all[t]);
  }

  void fill_tile(const AttentionTask& task, int head, int t, int rows, Tile<Element>& tile) const {
    tile.rows = std::min(TILE, rows - t * TILE);
    for (int r = 0; r < tile.rows; r++) {
      const int row = t * TILE + r;
      const size_t at = plan_.tokens[task.first_token + row / group_];
      const Element* from = queries_ + (at * model_.heads + head * group_ + row % group_) * dims_;
      std::memcpy(tile.queries + r * dims_, from, dims_ * sizeof(Element));
    }
  }

  // What each row sees of the chunk; the end of what any sees, 0 for nothing.
  int look(const AttentionTask& task, int t, int chunk, Tile<Element>& tile) const {
    int end = 0;
    for (int r = 0; r < tile.rows; r++) {
      const TokenInfo& info = token(task, (t * TILE + r) / group_);
      tile.first[r] = info.seen_from - chunk * CHUNK;
      tile.end[r] = std::min(CHUNK, info.position + 1 - chunk * CHUNK);
      if (tile.first[r] < tile.end[r]) end = std::max(end, tile.end[r]);
    }
    return end;
  }

  void hand_out(const AttentionTask& task, int head, int t, const Tile<Element>& tile,
                const Partial& result) const {
    for (int r = 0; r < tile.rows; r++) {
      const int row = t * TILE + r;
      const TokenInfo& info = token(task, row / group_);
      const int query_head = head * group_ + row % group_;
      const float* values = result.values + r * dims_;
      if (info.slot < 0) {
        finish(info, query_head, result.total[r], values);
        continue;
      }
      const int chunk = task.first_chunk - plan_.first_chunk(info);
      float* to = partials_.at(info.slot, chunk, query_head);
      to[0] = result.top[r];
      to[1] = result.total[r];
      std::memcpy(to + 16, values, dims_ * sizeof(float));
    }
  }

  void finish(const TokenInfo& info, int head, float total, const float* values) const {
    const Vec inverse = splat(1.f / total);
    for (int d = 0; d < model_.head_dim; d += LANES)
      put(out_, info.out_row, head * model_.head_dim + d, mul(load(values + d), inverse));
  }

  void join(const TokenInfo& info) const {
    for (int head = 0; head < model_.heads; head++) {
      float* all = partials_.at(info.slot, 0, head);
      for (int chunk = 1; chunk < plan_.chunks(info); chunk++) {
        const float* next = partials_.at(info.slot, chunk, head);
        merge_row(all[0], all[1], all + 16, next[0], next[1], next + 16, dims_);
      }
      finish(info, head, all[1], all + 16);
    }
  }

  const Model& model_;
  const KvLayout& kv_;
  const AttentionPlan& plan_;
  const char* memory_;
  const Element* queries_;
  const Input& out_;
  const Partials& partials_;
  const int group_, dims_;
  Scoring how_;
};
