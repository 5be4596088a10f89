/* The CUDA runtime as FlashInfer's host code sees it, on a machine without a GPU.

   It answers as a card of capability 9.0 with 132 multiprocessors (an H100 SXM or an H200), copies
   memory at once, and records kernel launches without running them. `python -m workloads
   check-gpu-offline` builds and loads it; no server ever does. Standard C, no CUDA headers, so the
   types below stand for the runtime's own. One thread only. */

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  unsigned x, y, z;
} dim3;

typedef struct {
  dim3 grid, block;
  size_t shared_bytes;
  void *stream, *attributes;
  unsigned num_attributes;
} launch_config;

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2 };

/* Blocks of one kernel that fit a multiprocessor at once. Really it depends on the kernel. */
enum { OCCUPANCY = 2 };

/* ---- What was recorded, for the process that loaded this library ---- */

typedef struct {
  const char *kernel; /* the mangled name; "" where it was never registered */
  unsigned grid[3], block[3];
  size_t shared_bytes;
} launch_record;

static launch_record *launches;
static size_t num_launches, room_for_launches;
static size_t num_copies;

size_t stub_num_launches(void) { return num_launches; }
const launch_record *stub_launch(size_t index) { return &launches[index]; }
size_t stub_num_copies(void) { return num_copies; }
void stub_reset(void) { num_launches = num_copies = 0; }

/* ---- Kernels: the address that launches name, and what each is called ---- */

typedef struct {
  const void *address;
  const char *name;
} kernel_entry;

static kernel_entry *kernels;
static size_t num_kernels, room_for_kernels;

/* Makes room for one more of `size` bytes; 0 where there is no memory. */
static int grow(void **array, size_t used, size_t *room, size_t size) {
  if (used < *room) return 1;
  size_t wanted = *room ? 2 * *room : 256;
  void *moved = realloc(*array, wanted * size);
  if (!moved) return 0;
  *array = moved;
  *room = wanted;
  return 1;
}

static const char *name_of(const void *address) {
  for (size_t i = 0; i < num_kernels; i++)
    if (kernels[i].address == address) return kernels[i].name;
  return "";
}

static int record(const void *kernel, dim3 grid, dim3 block, size_t shared_bytes) {
  if (!grow((void **)&launches, num_launches, &room_for_launches, sizeof *launches))
    return OUT_OF_MEMORY;
  launches[num_launches++] = (launch_record){
      name_of(kernel), {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes};
  return SUCCESS;
}

static void *binary_handle;

void **__cudaRegisterFatBinary(void *binary) {
  binary_handle = binary;
  return &binary_handle;
}
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }

void __cudaRegisterFunction(void **handle, const char *address, char *device_address,
                            const char *name, int thread_limit, void *thread, void *block_id,
                            dim3 *block, dim3 *grid, int *warp_size) {
  (void)handle, (void)device_address, (void)thread_limit, (void)thread, (void)block_id;
  (void)block, (void)grid, (void)warp_size;
  if (!grow((void **)&kernels, num_kernels, &room_for_kernels, sizeof *kernels)) abort();
  kernels[num_kernels++] = (kernel_entry){address, name};
}

void __cudaRegisterVar(void **handle, char *address, char *device_address, const char *name,
                       int external, size_t size, int constant, int global) {
  (void)handle, (void)address, (void)device_address, (void)name;
  (void)external, (void)size, (void)constant, (void)global;
}

/* ---- Launches ---- */

static launch_config pushed;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void *stream) {
  pushed.grid = grid;
  pushed.block = block;
  pushed.shared_bytes = shared_bytes;
  pushed.stream = stream;
  return 0;
}

int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void **stream) {
  *grid = pushed.grid;
  *block = pushed.block;
  *shared_bytes = pushed.shared_bytes;
  *stream = pushed.stream;
  return SUCCESS;
}

int __cudaGetKernel(const void **kernel, const void *address) {
  *kernel = address;
  return SUCCESS;
}

int __cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                       size_t shared_bytes, void *stream) {
  (void)arguments, (void)stream;
  return record(kernel, grid, block, shared_bytes);
}

int cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                     size_t shared_bytes, void *stream) {
  (void)arguments, (void)stream;
  return record(kernel, grid, block, shared_bytes);
}

int cudaLaunchKernelExC(const launch_config *config, const void *kernel, void **arguments) {
  (void)arguments;
  return record(kernel, config->grid, config->block, config->shared_bytes);
}

/* ---- The device ---- */

int cudaGetDevice(int *device) {
  *device = 0;
  return SUCCESS;
}

int cudaSetDevice(int device) { return device == 0 ? SUCCESS : INVALID_VALUE; }

int cudaGetDeviceCount(int *count) {
  *count = 1;
  return SUCCESS;
}

int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  switch (attribute) {
    case 1: *value = 1024; break;         /* threads in a block */
    case 8: *value = 48 * 1024; break;    /* shared memory of a block */
    case 10: *value = 32; break;          /* threads in a warp */
    case 12: *value = 65536; break;       /* registers of a block */
    case 16: *value = 132; break;         /* multiprocessors */
    case 39: *value = 2048; break;        /* threads on a multiprocessor */
    case 75: *value = 9; break;           /* capability, before the dot */
    case 76: *value = 0; break;           /* and behind it */
    case 81: *value = 228 * 1024; break;  /* shared memory of a multiprocessor */
    case 82: *value = 65536; break;       /* registers of a multiprocessor */
    case 97: *value = 227 * 1024; break;  /* shared memory that a block may ask for */
    case 106: *value = 32; break;         /* blocks on a multiprocessor */
    default:
      fprintf(stderr, "cuda_runtime_stub: no answer for device attribute %d\n", attribute);
      return INVALID_VALUE;
  }
  return device == 0 ? SUCCESS : INVALID_VALUE;
}

int cudaFuncSetAttribute(const void *kernel, int attribute, int value) {
  (void)kernel, (void)attribute, (void)value;
  return SUCCESS;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int threads,
                                                  size_t shared_bytes) {
  (void)kernel, (void)threads, (void)shared_bytes;
  *blocks = OCCUPANCY;
  return SUCCESS;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *kernel,
                                                           int threads, size_t shared_bytes,
                                                           unsigned flags) {
  (void)flags;
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared_bytes);
}

int cudaMemcpyAsync(void *target, const void *source, size_t bytes, int kind, void *stream) {
  (void)kind, (void)stream;
  memmove(target, source, bytes);
  num_copies++;
  return SUCCESS;
}

/* ---- Errors ---- */

int cudaGetLastError(void) { return SUCCESS; }
int cudaPeekAtLastError(void) { return SUCCESS; }
const char *cudaGetErrorName(int error) { return error == SUCCESS ? "success" : "stub error"; }
const char *cudaGetErrorString(int error) { return cudaGetErrorName(error); }
