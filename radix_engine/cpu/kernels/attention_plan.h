// A step's attention cut into tasks.
//
//   prompts   a run of one span's tokens, one KV head, all chunks in order
//   decodes   single tokens: one task per chunk, so that one long context keeps all threads busy;
//             the last task to end merges the chunks of a token. Tokens whose chunk lies in the
//             same blocks (a shared prefix) are one task: K and V are read once for all of them.
#pragma once
#include <numeric>
#include <vector>

#include "attention.h"
#include "model.h"

struct AttentionTask {
  int first_token;  // in AttentionPlan::tokens
  int num_tokens;
  int first_head;
  int end_head;
  int first_chunk;
  int end_chunk;
  bool parts;  // results go to partials
};

struct TokenInfo {
  int position;
  int seen_from;  // the first position that it sees
  int out_row;    // where its result goes
  const int32_t* table;
  int slot;       // among tokens with partials, or -1
};

struct AttentionPlan {
  std::vector<AttentionTask> tasks;
  std::vector<int> tokens;       // indices into info; tasks name ranges
  std::vector<TokenInfo> info;   // [tokens of the step]
  std::vector<int> tasks_of;     // [slot] tasks that contribute to it
  int max_chunks = 0;            // of a token with partials

  int first_chunk(const TokenInfo& t) const { return t.seen_from / CHUNK; }
  int chunks(const TokenInfo& t) const { return t.position / CHUNK + 1 - first_chunk(t); }
};

class AttentionPlanner {
 public:
  // `last`: only tokens that want logits matter, and their results are put one after another.
  AttentionPlanner(const Model& model, const Batch& batch, int window, bool last, int threads)
      : model_(model), batch_(batch), threads_(threads) {
    plan_.info.reserve(batch.tokens);
    int row = 0;
    for (int s = 0; s < batch.spans; s++) {
      const int from = last ? batch.lengths[s] - batch.logits[s] : 0;
      for (int i = 0; i < batch.lengths[s]; i++) {
        const int position = batch.starts[s] + i;
        const int seen = window > 0 && position >= window ? position - window + 1 : 0;
        plan_.info.push_back(
            {position, seen, i >= from ? row++ : -1, batch.tables + batch.table_at[s], -1});
      }
    }
    plan(last);
  }

  AttentionPlan take() { return std::move(plan_); }

 private:
  void plan(bool last) {
    std::vector<int> singles;
    int begin = 0, rows = 0;
    for (int s = 0; s < batch_.spans; s++) {
      const int length = batch_.lengths[s], wanted = last ? batch_.logits[s] : length;
      if (wanted == 1) singles.push_back(begin + length - 1);
      if (wanted > 1) rows += wanted;
      begin += length;
    }
    begin = 0;
    for (int s = 0; s < batch_.spans; s++) {
      const int length = batch_.lengths[s], wanted = last ? batch_.logits[s] : length;
      if (wanted > 1) add_prompt(begin + length - wanted, wanted, rows);
      begin += length;
    }
    add_singles(singles);
  }

  // Long contexts first, and pieces as large as leaves some for every thread.
  void add_prompt(int first, int count, int rows) {
    const int group = model_.heads / model_.kv_heads;
    const int unit = TILE / std::gcd(TILE, group);  // tokens whose rows fill whole tiles
    const int even = rows * model_.kv_heads / (6 * threads_) + 1;
    const int most = std::min(TILE * MAX_TILES / group, (even + unit - 1) / unit * unit);
    // One head after another: what a thread has read of it may still be near for its next task.
    const int at = (int)plan_.tokens.size();
    for (int i = 0; i < count; i++) plan_.tokens.push_back(first + i);
    for (int h = 0; h < model_.kv_heads; h++)
      for (int end = count; end > 0; end -= most) {
        const int from = std::max(end - most, 0);
        const int begin = plan_.first_chunk(plan_.info[first + from]);
        const int stop = plan_.info[first + end - 1].position / CHUNK + 1;
        plan_.tasks.push_back({at + from, end - from, h, h + 1, begin, stop, false});
      }
  }

  void add_singles(const std::vector<int>& singles) {
    if (singles.empty()) return;
    std::vector<std::vector<int>> open = {singles};
    struct Piece { std::vector<int> tokens; int chunk; };
    std::vector<Piece> pieces;
    int farthest = 0;
    for (int t : singles) {
      TokenInfo& info = plan_.info[t];
      farthest = std::max(farthest, info.position / CHUNK);
      if (plan_.chunks(info) > 1) {
        info.slot = (int)plan_.tasks_of.size();
        plan_.tasks_of.push_back(0);
        plan_.max_chunks = std::max(plan_.max_chunks, plan_.chunks(info));
      }
    }
    for (int chunk = 0; chunk <= farthest; chunk++) {
      std::vector<std::vector<int>> next;
      for (auto& group : open)
        for (auto& same : split(group, chunk)) next.push_back(std::move(same));
      open = std::move(next);
      for (auto& group : open) {
        std::vector<int> there;
        for (int t : group) {
          const TokenInfo& info = plan_.info[t];
          if (info.seen_from / CHUNK <= chunk && chunk <= info.position / CHUNK) there.push_back(t);
        }
        const int most = TILE * MAX_TILES / (model_.heads / model_.kv_heads);
        for (size_t i = 0; i < there.size(); i += most)
          pieces.push_back({{there.begin() + i, there.begin() + std::min(there.size(), i + most)},
                            chunk});
      }
    }
    const int heads_each = (int)pieces.size() >= 4 * threads_ ? model_.kv_heads : 1;
    for (auto& piece : pieces) {
      const int at = (int)plan_.tokens.size(), count = (int)piece.tokens.size();
      plan_.tokens.insert(plan_.tokens.end(), piece.tokens.begin(), piece.tokens.end());
      for (int h = 0; h < model_.kv_heads; h += heads_each) {
        plan_.tasks.push_back({at, count, h, h + heads_each, piece.chunk, piece.chunk + 1, true});
        for (int t : piece.tokens)
          if (plan_.info[t].slot >= 0) plan_.tasks_of[plan_.info[t].slot]++;
      }
    }
  }

  // Tokens of a group that have the same blocks in this chunk; one whose context ends inside it is
  // alone. Those that were apart before stay apart.
  std::vector<std::vector<int>> split(const std::vector<int>& group, int chunk) {
    std::vector<std::vector<int>> parts;
    for (int t : group) {
      const TokenInfo& info = plan_.info[t];
      if (info.position / CHUNK < chunk) continue;
      const bool whole = info.position >= (chunk + 1) * CHUNK - 1;
      bool placed = false;
      for (auto& part : parts) {
        const TokenInfo& other = plan_.info[part[0]];
        if (!whole || other.position < (chunk + 1) * CHUNK - 1) continue;
        if (std::memcmp(info.table + chunk * CHUNK_BLOCKS, other.table + chunk * CHUNK_BLOCKS,
                        CHUNK_BLOCKS * sizeof(int32_t)))
          continue;
        part.push_back(t);
        placed = true;
        break;
      }
      if (!placed) parts.push_back({t});
    }
    return parts;
  }

 public:
  static constexpr int MAX_TILES = 8;

 private:
  const Model& model_;
  const Batch& batch_;
  const int threads_;
  AttentionPlan plan_;
};
