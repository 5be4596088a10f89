#include "step.h"

#include <algorithm>

Step::Step(const Model& model, const KvLayout& kv, const Batch& batch, Rotations& rotations,
           Workspace& space, int threads)
    : model_(model), kv_(kv), batch_(batch), rotations_(rotations), space_(space),
      threads_(threads) {
  int begin = 0, farthest = 0;
  for (int s = 0; s < batch.spans; s++) {
    const int32_t* table = batch.tables + batch.table_at[s];
    for (int i = 0; i < batch.lengths[s]; i++) {
      const int position = batch.starts[s] + i;
      position_.push_back(position);
      block_.push_back(table[position / BLOCK]);
      farthest = std::max(farthest, position);
      if (i >= batch.lengths[s] - batch.logits[s]) rows_wanted_.push_back(begin + i);
    }
    begin += batch.lengths[s];
  }
  wanted_ = (int)rows_wanted_.size();
  rotations.reserve(farthest + 1);
  plan_attention();
  place_buffers();
  phases_ = std::make_unique<Phase[]>((size_t)model.layers * PHASES + TAIL_PHASES);
  set_phases();
}

void Step::plan_attention() {
  // One plan per window that occurs; another for the last layer.
  std::vector<int> windows;
  plans_.reserve(model_.layers);
  for (int l = 0; l < model_.layers; l++) {
    const int window = model_.layer[l].window;
    const bool last = is_last(l);
    const auto known = std::find(windows.begin(), windows.end(), window);
    if (last || known == windows.end()) {
      plan_index_.push_back((int)plans_.size());
      plans_.push_back(AttentionPlanner(model_, batch_, window, last, threads_).take());
      windows.push_back(last ? -1 : window);
    } else {
      plan_index_.push_back((int)(known - windows.begin()));
    }
  }
  size_t room = 0;
  for (const auto& plan : plans_)
    room = std::max(room, plan.tasks_of.size() * plan.max_chunks * model_.heads *
                              Partials::row_floats(kv_.dims()));
  float* data = (float*)space_.partials.room(room * sizeof(float));
  for (int l = 0; l < model_.layers; l++) {
    const AttentionPlan& plan = plan_of(l);
    const size_t slots = plan.tasks_of.size();
    left_.push_back(std::make_unique<std::atomic<int>[]>(slots));
    for (size_t i = 0; i < slots; i++) left_[l][i].store(plan.tasks_of[i]);
    partials_.push_back({data, left_[l].get(), plan.max_chunks, model_.heads, kv_.dims()});
  }
}

void Step::place_buffers() {
  const int n = batch_.tokens, heads_width = model_.heads * model_.head_dim;
  const Layer& first = model_.layer[0];
  residual_ = (float*)space_.residual.room((size_t)n * model_.hidden * sizeof(float));
  qkv_stride_ = padded(first.qkv.outputs);
  qkv_ = (float*)space_.qkv.room((size_t)n * qkv_stride_ * sizeof(float));
  queries_ = space_.queries.room((size_t)n * model_.heads * kv_.dims() * sizeof(float));
  auto placed = [&](Buffer& buffer, int format, int columns) {
    const Form form = form_of(format);
    return place(form, columns, n, buffer.room(input_bytes(form, columns, n)));
  };
  attended_ = placed(space_.attended, first.output.format, heads_width);
  inner_ = placed(space_.inner, first.down.format, model_.inner);
  normed_ = placed(space_.norm, first.qkv.format, model_.hidden);
  head_in_ = placed(space_.head, model_.head.format, model_.hidden);
}

void Step::set_phases() {
  const int n = batch_.tokens;
  auto product_tasks = [](const Matrix& m, int rows) {
    return num_panels(m) * ((rows + ROW_CHUNK - 1) / ROW_CHUNK);
  };
  for (int l = 0; l < model_.layers; l++) {
    const Layer& layer = model_.layer[l];
    const int rows = is_last(l) ? wanted_ : n;
    phase(l, NORM).set(n > FEW_ROWS ? row_tasks(n) : 0);
    phase(l, QKV).set(product_tasks(layer.qkv, n));
    phase(l, KEYS).set(row_tasks(n));
    phase(l, ATTEND).set((int)plan_of(l).tasks.size());
    phase(l, GATHER).set(is_last(l) ? 1 : 0);
    phase(l, ATTENDED).set(attended_.form == BYTES ? row_tasks(rows) : 0);
    phase(l, OUTPUT).set(product_tasks(layer.output, rows));
    phase(l, MLP_NORM).set(rows > FEW_ROWS ? row_tasks(rows) : 0);
    phase(l, GATE_UP).set(product_tasks(layer.gate_up, rows));
    phase(l, INNER).set(inner_.form == BYTES ? row_tasks(rows) : 0);
    phase(l, DOWN).set(product_tasks(layer.down, rows));
  }
  phase(model_.layers, EMBED).set(row_tasks(n));
  phase(model_.layers, HEAD_NORM).set(wanted_ > FEW_ROWS ? row_tasks(wanted_) : 0);
  phase(model_.layers, HEAD).set(product_tasks(model_.head, wanted_));
}

void Step::embed(int row) {
  const size_t at = (size_t)batch_.ids[row] * model_.hidden;
  float* to = residual_ + (size_t)row * model_.hidden;
  for (int i = 0; i < model_.hidden; i += LANES)
    store(to + i, model_.embedding_halves ? load_bf16((const bf16*)model_.embedding + at + i)
                                          : load((const float*)model_.embedding + at + i));
}

template <class Sink>
void Step::multiply(int me, Phase& phase, const Matrix& m, const Input& in, int rows, Sink&& sink) {
  shape_tiles_for_products();
  const int panels = num_panels(m);
  pass(me, phase, [&](int t) {
    const int first = t / panels * ROW_CHUNK, panel = t % panels;
    product(m, in, first, std::min(ROW_CHUNK, rows - first), panel, panel + threads_,
            [&](int row, Vec low, Vec high) { sink(row, panel, low, high); });
  });
}

// The norm of the residual's rows: by this thread for itself if they are few, else by all.
Input Step::normed(int me, Phase& phase, const float* weight, int rows, const Input& shared) {
  auto one = [&](const Input& to, int r) {
    norm_row(residual_ + (size_t)r * model_.hidden, weight, model_.hidden, model_.eps, to, r);
  };
  if (rows > FEW_ROWS) {
    each_row(me, phase, rows, [&](int r) { one(shared, r); });
    return shared;
  }
  const Input own = place(shared.form, model_.hidden, rows, space_.own[me]->data());
  for (int r = 0; r < rows; r++) one(own, r);
  return own;
}

// Norms and rotation of a token's heads; its K and V go into their block, its queries aside.
void Step::write_keys(const Layer& layer, int row) {
  const int dim = model_.head_dim, half = dim / 2;
  float* x = qkv_ + (size_t)row * qkv_stride_;
  const float* turn = rotations_.cosines(position_[row]);
  char* block = layer.kv + block_[row] * kv_.block_bytes();
  const int offset = position_[row] % BLOCK;
  float* keys = x + model_.heads * dim;
  float* values = keys + model_.kv_heads * dim;
  for (int h = 0; h < model_.kv_heads; h++) {
    if (layer.key_norm) norm_head(keys + h * dim, layer.key_norm, dim, model_.eps);
    rotate_head(keys + h * dim, turn, half);
    write_kv(kv_, block, h, offset, keys + h * dim, values + h * dim);
  }
  for (int h = 0; h < model_.heads; h++) {
    if (layer.query_norm) norm_head(x + h * dim, layer.query_norm, dim, model_.eps);
    rotate_head(x + h * dim, turn, half);
    const size_t at = ((size_t)row * model_.heads + h) * kv_.dims();
    for (int d = 0; d < kv_.dims(); d += LANES) {
      const Vec v = d < dim ? load(x + h * dim + d) : zero();
      if (kv_.pairs)
        store_bf16((bf16*)queries_ + at + d, v);
      else
        store((float*)queries_ + at + d, v);
    }
  }
}

template <class Element>
void Step::attend(int me, int layer) {
  auto& scratch = *(AttentionScratch<Element>*)space_.own[me]->data();
  const AttentionRun<Element> run(model_, kv_, plan_of(layer), model_.layer[layer].kv,
                                  (const Element*)queries_, attended_, partials_[layer]);
  pass(me, phase(layer, ATTEND), [&](int t) { run.task(t, scratch); });
}

void Step::add_to_residual(int row, int panel, Vec low, Vec high) {
  float* to = residual_ + (size_t)row * model_.hidden + panel * PANEL;
  store(to, add(load(to), low));
  store(to + 16, add(load(to + 16), high));
}

void Step::run_layer(int me, int l) {
  const Layer& layer = model_.layer[l];
  int rows = batch_.tokens;
  const Input in = normed(me, phase(l, NORM), layer.input_norm, rows, normed_);
  multiply(me, phase(l, QKV), layer.qkv, in, rows, [&](int row, int panel, Vec low, Vec high) {
    float* to = qkv_ + (size_t)row * qkv_stride_ + panel * PANEL;
    store(to, low);
    store(to + 16, high);
  });
  each_row(me, phase(l, KEYS), rows, [&](int r) { write_keys(layer, r); });
  if (is_last(l) && !wanted_) return;
  if (kv_.pairs)
    attend<HalfElement>(me, l);
  else
    attend<float>(me, l);
  if (is_last(l)) {
    pass(me, phase(l, GATHER), [&](int) {
      for (int i = 0; i < wanted_; i++)  // never forwards: rows_wanted_[i] >= i
        std::memmove(residual_ + (size_t)i * model_.hidden,
                     residual_ + (size_t)rows_wanted_[i] * model_.hidden, model_.hidden * 4);
    });
    rows = wanted_;
  }
  if (attended_.form == BYTES)
    each_row(me, phase(l, ATTENDED), rows, [&](int r) { quantize_row(attended_, r); });
  auto to_residual = [&](int row, int panel, Vec low, Vec high) {
    add_to_residual(row, panel, low, high);
  };
  multiply(me, phase(l, OUTPUT), layer.output, attended_, rows, to_residual);
  const Input mid = normed(me, phase(l, MLP_NORM), layer.mlp_norm, rows, normed_);
  multiply(me, phase(l, GATE_UP), layer.gate_up, mid, rows,
           [&](int row, int panel, Vec gate, Vec up) {
             const Vec gated = inner_.form == HALVES ? rough_silu(gate) : silu(gate);
             put(inner_, row, panel * 16, mul(gated, up));
           });
  if (inner_.form == BYTES)
    each_row(me, phase(l, INNER), rows, [&](int r) { quantize_row(inner_, r); });
  multiply(me, phase(l, DOWN), layer.down, inner_, rows, to_residual);
}

void Step::run(int me) {
  const int n = batch_.tokens;
  each_row(me, phase(model_.layers, EMBED), n, [&](int r) { embed(r); });
  for (int l = 0; l < model_.layers; l++) run_layer(me, l);
  if (wanted_) {
    const Input in = normed(me, phase(model_.layers, HEAD_NORM), model_.norm, wanted_, head_in_);
    multiply(me, phase(model_.layers, HEAD), model_.head, in, wanted_,
             [&](int row, int panel, Vec low, Vec high) {
               float* to = batch_.out + (size_t)row * model_.vocab + panel * PANEL;
               const int left = model_.vocab - panel * PANEL;
               if (left >= PANEL) return store(to, low), store(to + 16, high);
               alignas(64) float all[PANEL];
               store(all, low);
               store(all + 16, high);
               std::memcpy(to, all, left * sizeof(float));
             });
  }
  release_tiles();
}
