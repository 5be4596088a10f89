// Threads that go through the phases of a step together.
//
// A phase is a number of tasks. It is over when its tasks are done, not when every thread has come
// by: a thread that the system has put aside between two tasks delays nobody, finds its phases
// over when it is back, and runs on to where the others are. Only a thread that was put aside
// inside a task is waited for. How long the caller waited tells whether the processors are its own
// (`Crew`).
#pragma once
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "simd.h"

struct alignas(64) Phase {
  std::atomic<int> next{0};
  std::atomic<int> done{0};
  int tasks = 0;

  void set(int count) {
    tasks = count;
    next.store(0, std::memory_order_relaxed);
    done.store(0, std::memory_order_relaxed);
  }
};

INLINE uint64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Take tasks until there are none, then wait until all are done. Returns nanoseconds waited, as
// far as they are worth reading a clock for.
template <class F>
INLINE uint64_t work_through(Phase& phase, F&& task) {
  int mine = 0;
  for (int t; (t = phase.next.fetch_add(1, std::memory_order_relaxed)) < phase.tasks; mine++) task(t);
  if (mine) phase.done.fetch_add(mine, std::memory_order_acq_rel);
  for (int spins = 0; spins < 200; spins++) {
    if (phase.done.load(std::memory_order_acquire) >= phase.tasks) return 0;
    _mm_pause();
  }
  const uint64_t began = now_ns();
  for (int spins = 0; phase.done.load(std::memory_order_acquire) < phase.tasks; spins++) {
    _mm_pause();
    // Whoever holds the task may need this very processor.
    if (spins % 4096 == 4095) sched_yield();
  }
  return now_ns() - began;
}

// The threads themselves. `run` may be called by one thread at a time.
class Team {
 public:
  // Throws std::system_error where the system gives no more threads.
  explicit Team(int threads) : size_(threads) {
    try {
      for (int i = 1; i < threads; i++) threads_.emplace_back([this, i] { serve(i); });
    } catch (...) {
      end();
      throw;
    }
  }
  ~Team() { end(); }
  int size() const { return size_; }

  // job(0) here and job(1) up to job(count - 1) on other threads. Returns when job(0) does; others
  // may still be on their way out, so what they could look at must live until `settle`.
  void run(int count, std::shared_ptr<std::function<void(int)>> job) {
    if (count <= 1) return (*job)(0);
    settle();
    job_ = std::move(job);
    count_.store(count, std::memory_order_seq_cst);
    turn_.fetch_add(1, std::memory_order_seq_cst);
    wake();
    (*job_)(0);
  }

  // Until no other thread is in a job any more, nor can get into it.
  void settle() {
    count_.store(0, std::memory_order_seq_cst);
    for (int spins = 0; inside_.load(std::memory_order_seq_cst) > 0; spins++) {
      _mm_pause();
      if (spins % 1024 == 1023) sched_yield();
    }
    job_.reset();
  }

 private:
  void end() {
    stop_.store(true);
    turn_.fetch_add(1, std::memory_order_seq_cst);  // who is about to sleep does not
    wake();
    for (auto& thread : threads_) thread.join();
  }

  void wake() {
    if (sleepers_.load(std::memory_order_seq_cst) > 0)
      syscall(SYS_futex, &turn_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }

  void serve(int me) {
    _mm_setcsr(_mm_getcsr() | 0x8040);  // subnormal numbers are zeros
    unsigned seen = 0;
    while (!stop_.load(std::memory_order_relaxed)) {
      const unsigned turn = turn_.load(std::memory_order_seq_cst);
      if (turn == seen) {
        rest(seen);
        continue;
      }
      seen = turn;
      inside_.fetch_add(1, std::memory_order_seq_cst);
      // First inside, then looking: whoever finds a job here is waited for by `settle`, and who
      // comes after that finds none.
      if (me < count_.load(std::memory_order_seq_cst)) (*job_)(me);
      inside_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  // Spin a little: between two steps of a small model there is little time. Then sleep.
  void rest(unsigned seen) {
    for (int spins = 0; spins < 2000; spins++) {
      if (turn_.load(std::memory_order_acquire) != seen || stop_.load()) return;
      _mm_pause();
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (turn_.load(std::memory_order_seq_cst) == seen && !stop_.load())
      syscall(SYS_futex, &turn_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

  const int size_;
  std::shared_ptr<std::function<void(int)>> job_;
  std::atomic<int> count_{0};
  alignas(64) std::atomic<unsigned> turn_{0};
  alignas(64) std::atomic<int> inside_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// How many threads a step gets. When the caller of several steps waited for a large part of their
// time, another process has a processor: one thread less is faster then, since a phase takes as
// long as the slowest thread in it. After a pause all are tried again, and if that was no good,
// after a longer one.
class Crew {
 public:
  explicit Crew(int most) : most_(most), now_(most) {}

  int size() const { return now_; }

  // A step ran on so many threads, and its caller waited for the others so long.
  void saw(int threads, uint64_t step_ns, uint64_t waited_ns) {
    if (threads != now_) return;
    const double share = step_ns ? (double)waited_ns / step_ns : 0;
    strain_ += (share - strain_) * 0.3;
    if (now_ > 1 && strain_ > 0.2) {
      if (now_ == most_) lengthen_pause();
      now_--;
      strain_ = 0;
      calm_ = 0;
    } else if (now_ == most_) {
      if (++calm_ > 50) pause_ns_ = 0;
    } else if ((left_ns_ -= (int64_t)step_ns) <= 0) {
      now_ = most_;
      strain_ = 0;
    }
  }

 private:
  static constexpr int64_t FIRST_PAUSE = 100'000'000, LAST_PAUSE = 1'600'000'000;

  void lengthen_pause() {
    pause_ns_ = pause_ns_ ? std::min(2 * pause_ns_, LAST_PAUSE) : FIRST_PAUSE;
    left_ns_ = pause_ns_;
  }

  const int most_;
  int now_;
  double strain_ = 0;
  int calm_ = 0;
  int64_t pause_ns_ = 0, left_ns_ = 0;
};
