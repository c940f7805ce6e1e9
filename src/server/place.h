// A request's place among those that wait and run, from the moment it is let in to the end of its answer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "server/generation.h"
#include "server/key_usage.h"

namespace triptych::server {

class Place : public std::enable_shared_from_this<Place> {
 public:
  using Count = std::shared_ptr<std::atomic<std::size_t>>;
  /// `count` has been raised for it, and its key has begun, if it has one; both end with the place.
  Place(Count count, std::shared_ptr<KeyUsage> usage, std::optional<std::size_t> key)
      : count_(std::move(count)), usage_(std::move(usage)), key_(key) {}
  ~Place() {
    count_->fetch_sub(1);
    if (key_) usage_->end(*key_, n_tokens_);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  /// Keeps the place until all answers are written, and counts their tokens.
  Generation::OnResults on_results() {
    return [self = shared_from_this()](const std::vector<GenerationResult>& results) {
      for (const GenerationResult& result : results)
        self->n_tokens_ += result.n_prompt_tokens + static_cast<std::int64_t>(result.token_ids.size());
    };
  }

 private:
  const Count count_;
  const std::shared_ptr<KeyUsage> usage_;
  const std::optional<std::size_t> key_;
  std::atomic<std::int64_t> n_tokens_{0};
};

}  // namespace triptych::server
