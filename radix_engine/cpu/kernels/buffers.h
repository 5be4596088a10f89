// Memory that grows as needed and is never zeroed again.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>

class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { std::free(data_); }

  // At least so many bytes, on a boundary of 64; what they held before is lost. Throws bad_alloc.
  char* room(size_t bytes) {
    if (bytes <= size_) return data_;
    std::free(data_);
    size_ = 0;
    size_t unit = bytes >= HUGE ? HUGE : 64;
    size_t size = (bytes + unit - 1) / unit * unit;
    data_ = (char*)std::aligned_alloc(unit, size);
    if (!data_) throw std::bad_alloc();
    if (unit == HUGE) madvise(data_, size, MADV_HUGEPAGE);
    __builtin_memset(data_, 0, size);
    size_ = size;
    return data_;
  }

  char* data() const { return data_; }

 private:
  static constexpr size_t HUGE = 2 << 20;
  char* data_ = nullptr;
  size_t size_ = 0;
};
