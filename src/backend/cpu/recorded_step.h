// The operations of a step as the CPU backend notes them: calls with their arguments resolved, in order.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace triptych::cpu {

/// One thread records; any may run it. Runs take the backend's mutex once, not once an operation.
class RecordedStep final : public StepPlan {
 public:
  explicit RecordedStep(std::mutex& backend) : backend_(backend) {}

  void add(std::function<void()> operation) { operations_.push_back(std::move(operation)); }
  void run() override {
    const std::scoped_lock lock(backend_);
    for (const std::function<void()>& operation : operations_) operation();
  }
  std::int64_t n_operations() const noexcept override {
    return static_cast<std::int64_t>(operations_.size());
  }

 private:
  std::mutex& backend_;
  std::vector<std::function<void()>> operations_;
};

}  // namespace triptych::cpu
