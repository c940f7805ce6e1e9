// Pictures and videos of running requests on their way through the tower: from the cache of rows, or in
// passes over those of several requests together (encode_pass.h). A picture that several ask about goes
// through once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine_monitor.h"
#include "engine/model_runner.h"
#include "engine/sequence.h"
#include "engine/vision_embedding_cache.h"

namespace triptych {

class MediaEncoder {
 public:
  /// A pass takes up to `max_patches`, one item at least. Borrows backend, runner, cache and monitor.
  MediaEncoder(Backend& backend, ModelRunner& runner, VisionEmbeddingCache& cache, std::int64_t max_patches,
               ClockMs clock, EngineMonitor& monitor, std::function<void(MediaItem&)> make_pixels = {})
      : backend_(backend),
        runner_(runner),
        cache_(cache),
        monitor_(monitor),
        max_patches_(max_patches),
        clock_(std::move(clock)),
        make_pixels_(std::move(make_pixels)) {}

  /// Takes up what these sequences, in their order, need and is not on its way: rows that the cache has at
  /// once, the others in the pass that runs, if they are in it, or in a new one when none runs.
  void gather(std::span<const std::unique_ptr<Sequence>> sequences);
  /// A pass is under way.
  bool has_work() const noexcept { return pass_ != nullptr || !apart_.empty(); }

  struct Failure {
    Sequence* sequence = nullptr;
    std::exception_ptr error;
  };
  /// Goes on with the pass as EncodePass::run does; rows that are done go to their sequences. When it throws,
  /// its items are tried one by one, and what an item throws alone is appended to `failures`, once for each
  /// sequence of it.
  void run(double budget_ms, const std::atomic<bool>& interrupt, std::vector<Failure>& failures);
  /// This sequence needs nothing any more. A pass that nobody needs ends here.
  void forget(const Sequence& sequence);

  /// Rows that the tower computed beyond those of the items' plans; passes, and stretches of passes.
  std::int64_t n_padded_patches() const noexcept { return n_padded_patches_; }
  std::int64_t n_passes() const noexcept { return n_passes_; }
  std::int64_t n_stretches() const noexcept { return n_stretches_; }

 private:
  struct Target {
    Sequence* sequence = nullptr;
    std::size_t medium = 0;  // of the sequence
    std::size_t item = 0;    // of the pass
  };
  struct Work {
    std::vector<MediaItem> items;
    std::vector<Target> targets;
  };
  bool is_on_its_way(const Sequence& s, std::size_t medium) const;
  bool take_from_cache(Sequence& s, std::size_t medium);
  static bool join(std::span<const MediaItem> items, std::vector<Target>& targets, Sequence& s,
                   std::size_t medium);
  static void give_back(std::vector<MediaItem>& items, std::span<const Target> targets) noexcept;
  void gather(std::span<const std::unique_ptr<Sequence>> sequences, Work& next);
  void begin(Work& work);
  void deliver();
  void retreat(std::exception_ptr error, std::vector<Failure>& failures);
  void retreat(std::vector<MediaItem>& items, std::span<const Target> targets,
               const std::exception_ptr& error, std::vector<Failure>& failures);

  Backend& backend_;
  ModelRunner& runner_;
  VisionEmbeddingCache& cache_;
  EngineMonitor& monitor_;
  std::int64_t max_patches_;
  ClockMs clock_;
  std::function<void(MediaItem&)> make_pixels_;  // of an item that has only frames

  std::unique_ptr<EncodePass> pass_;
  std::vector<Target> targets_;  // of the pass
  std::deque<Work> apart_;       // items of a pass that threw, one by one
  std::int64_t n_padded_patches_ = 0;
  std::int64_t n_passes_ = 0;
  std::int64_t n_stretches_ = 0;
};

}  // namespace triptych
