// What Python calls (radix_engine/cpu/library.py).
//
// Memory of weights, K and V and logits belongs to the caller. One `Engine` is used by one thread
// at a time.
#include <exception>

#include "pack.h"
#include "step.h"

#ifdef __AMX_BF16__
#define KERNELS "amx"
#elif defined(__AVX512BF16__)
#define KERNELS "avx512_bf16"
#elif defined(HAS_AVX512)
#define KERNELS "avx512"
#else
#define KERNELS "avx2"
#endif

struct Engine {
  Model model;
  std::vector<Layer> layers;
  std::vector<float> frequencies;
  KvLayout kv;
  Rotations rotations;
  Workspace space;
  Team team;
  Crew crew;
  std::shared_ptr<Step> step;
  uint64_t step_ns = 0, waited_ns = 0;
  int threads = 0;

  Engine(const Model& m, int threads)
      : model(m),
        layers(m.layer, m.layer + m.layers),
        frequencies(m.frequencies, m.frequencies + m.head_dim / 2),
        kv(m.kv_type, m.kv_heads, m.head_dim),
        rotations(frequencies.data(), m.head_dim / 2),
        team(threads),
        crew(threads) {
    model.layer = layers.data();
    model.frequencies = frequencies.data();
    const size_t own = std::max(std::max(sizeof(AttentionScratch<HalfElement>),
                                         sizeof(AttentionScratch<float>)),
                                input_bytes(BYTES, m.hidden, FEW_ROWS));
    for (int i = 0; i < threads; i++) {
      space.own.push_back(std::make_unique<Buffer>());
      space.own.back()->room(own);
    }
  }
};

extern "C" {

const char* kernels_name() { return KERNELS; }

int64_t matrix_bytes(int format, int outputs, int columns) {
  return (int64_t)(padded(outputs) / PANEL) * panel_bytes(format, columns);
}

int64_t kv_block_bytes(int type, int kv_heads, int head_dim) {
  return KvLayout(type, kv_heads, head_dim).block_bytes();
}

// `from` [rows, columns] into the panels `first` up to `end` of `to`.
void pack_matrix(char* to, int format, const void* from, int source, int rows, int columns,
                 const int32_t* halves, int first, int end) {
  for (int p = first; p < end; p++) {
    char* panel = to + p * panel_bytes(format, columns);
    each_output(halves, p, rows, [&](int output, int row) {
      pack_floats(panel, format, output, from, source, columns, row);
    });
  }
}

// The same from a GGUF file's own blocks; `columns` is a multiple of 32.
void pack_blocks(char* to, int format, const uint8_t* from, int kind, int rows, int columns,
                 const int32_t* halves, int first, int end) {
  const size_t row_bytes = (size_t)columns / GROUP * block_bytes_of(kind);
  for (int p = first; p < end; p++) {
    char* panel = to + p * panel_bytes(format, columns);
    each_output(halves, p, rows, [&](int output, int row) {
      for (int g = 0; g < columns / GROUP; g++)
        put_group(panel + g * group_bytes(format), format, output,
                  read_block(from + row * row_bytes + g * block_bytes_of(kind), kind));
    });
  }
}

// One matrix times `rows` rows of floats [rows, columns], alone: [rows, outputs padded to 32].
// `columns` is a multiple of 16. 0, or 1 when memory ran out.
int multiply_rows(const Matrix* m, const float* rows, int count, float* out) {
  try {
    Buffer memory;
    const Form form = form_of(m->format);
    const Input in = place(form, m->columns, count,
                           memory.room(input_bytes(form, m->columns, count)));
    for (int r = 0; r < count; r++) {
      for (int c = 0; c < m->columns; c += LANES)
        put(in, r, c, load(rows + (size_t)r * m->columns + c));
      quantize_row(in, r);
    }
    shape_tiles_for_products();
    const size_t width = padded(m->outputs);
    for (int p = 0; p < num_panels(*m); p++)
      product(*m, in, 0, count, p, p + 1, [&](int row, Vec low, Vec high) {
        store(out + row * width + p * PANEL, low);
        store(out + row * width + p * PANEL + 16, high);
      });
    release_tiles();
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

// The functions of simd.h on 16 floats: 0: 2^x, 1: x / (1 + e^-x), 2: tanh, 3: rounded to bf16.
void apply_function(int which, const float* in, float* out) {
  const Vec x = load(in);
  alignas(64) bf16 halves[LANES];
  switch (which) {
    case 0: return store(out, exp2(x));
    case 1: return store(out, silu(x));
    case 2: return store(out, tanh(x));
    default: store_bf16(halves, x); return store(out, load_bf16(halves));
  }
}

// How many threads each of these steps would get: `took` and `waited` in nanoseconds, as measured
// on more than one thread.
void replay_crew(int most, int steps, const int64_t* took, const int64_t* waited, int32_t* sizes) {
  Crew crew(most);
  for (int i = 0; i < steps; i++) {
    sizes[i] = crew.size();
    crew.saw(crew.size(), (uint64_t)took[i], crew.size() > 1 ? (uint64_t)waited[i] : 0);
  }
}

Engine* engine_new(const Model* model, int threads) {
  try {
    return new Engine(*model, threads);
  } catch (const std::exception&) {
    return nullptr;
  }
}

void engine_free(Engine* engine) { delete engine; }

// 0, or 1 when memory ran out. `threads`: how many to use; 0: as many as pays.
int engine_forward(Engine* engine, const Batch* batch, int threads) {
  const unsigned before = _mm_getcsr();
  int status = 0;
  try {
    const uint64_t began = now_ns();
    engine->team.settle();
    const int count = threads > 0 ? std::min(threads, engine->team.size()) : engine->crew.size();
    _mm_setcsr(before | 0x8040);  // subnormal numbers are zeros
    auto step = std::make_shared<Step>(engine->model, engine->kv, *batch, engine->rotations,
                                       engine->space, count);
    engine->step = step;
    engine->team.run(count, std::make_shared<std::function<void(int)>>(
                                [step](int me) { step->run(me); }));
    engine->threads = count;
    engine->step_ns = now_ns() - began;
    engine->waited_ns = step->waited_ns();
    if (threads <= 0) engine->crew.saw(count, engine->step_ns, engine->waited_ns);
  } catch (const std::exception&) {
    status = 1;
  }
  _mm_setcsr(before);
  return status;
}

// Threads, nanoseconds, and those waited for other threads, of the step before.
void engine_last(const Engine* engine, int64_t out[3]) {
  out[0] = engine->threads;
  out[1] = (int64_t)engine->step_ns;
  out[2] = (int64_t)engine->waited_ns;
}
}
